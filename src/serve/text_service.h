// The endpoints of a model that writes: chats, completions, tokenising, its weights. Handlers are called from many
// connections at once; errors are thrown (server.h makes replies of them).
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "serve/engine_loop.h"
#include "serve/http_server.h"
#include "serve/openai_reply.h"
#include "serve/serve_metrics.h"
#include "serve/served_model.h"

namespace tandem {

struct TextServiceOptions {
  int request_seconds = 600;  // for a reply, its waiting included
  bool allow_weight_updates = false;
  // Reads the weights of a folder for the same model; called on a connection's thread.
  std::function<std::unique_ptr<Decoder>(const std::filesystem::path&)> load_weights;
};

class TextService {
 public:
  // All must outlive it.
  TextService(const ServedModel& model, EngineLoop& loop, ServeMetrics& metrics, TextServiceOptions options);

  std::vector<HttpRoute> routes();

 private:
  class Flight;
  struct Stream;

  HttpReply chat(const HttpRequest& http);
  HttpReply completion(const HttpRequest& http);
  HttpReply generate(const HttpRequest& http);
  HttpReply tokenize(const HttpRequest& http) const;
  HttpReply detokenize(const HttpRequest& http) const;
  HttpReply weights() const;
  HttpReply update_weights(const HttpRequest& http);

  RequestLimits limits() const;
  ReplyHead new_head(const std::string& prefix);
  uint64_t random_bits();
  GenerationJob job_of(const TextRequest& request, std::vector<TokenId> ids, int64_t default_tokens);
  std::vector<AnsweredPrompt> prompts_of(const CompletionRequest& request) const;
  std::vector<GenerationJob> jobs_of(const CompletionRequest& request, const std::vector<AnsweredPrompt>& prompts);
  void answer(const HttpRequest& http, std::vector<GenerationJob> jobs, std::vector<AnsweredPrompt>& prompts,
              ReplyHead& head);
  HttpReply stream_reply(const HttpRequest& http, std::vector<GenerationJob> jobs, std::shared_ptr<Stream> stream);
  void write_stream(Stream& stream, const ByteSink& sink);
  void measure(const Generation& generation, int64_t tokens);

  const ServedModel& model_;
  EngineLoop& loop_;
  ServeMetrics& metrics_;
  const TextServiceOptions options_;
  const uint64_t seed_;
  std::atomic<uint64_t> num_drawn_ = 0;
  std::mutex updating_;
  mutable std::mutex path_mutex_;
  std::string weights_path_;
};

}  // namespace tandem
