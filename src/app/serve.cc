// tandem serve: a model, or a reward model, behind OpenAI's and vLLM's HTTP API.
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <thread>

#include "app/command.h"
#include "app/options.h"
#include "base/error.h"
#include "base/log.h"
#include "engine/engine.h"
#include "kernels/device_ops.h"
#include "serve/score_service.h"
#include "serve/server.h"
#include "serve/text_service.h"

namespace tandem {
namespace {

struct ServeArguments {
  std::string model, name, device = "auto";
  ServerOptions server{.chat_page = true};
  int64_t max_body_mb = 8;
  int request_seconds = 600, drain_seconds = 30, wait_seconds = 30;
  int64_t max_model_len = 2048, max_num_seqs = 0, max_samples = 1024, max_batched_tokens = 512, kv_cache_mb = 1024;
  int64_t threads = 0;
  bool allow_weight_updates = false, no_prefix_caching = false, no_chat_page = false;
};

int signal_pipe[2] = {-1, -1};

void on_signal(int signal) {
  [[maybe_unused]] const auto written = ::write(signal_pipe[1], "", 1);
  std::signal(signal, SIG_DFL);  // the second ends the process at once
}

void catch_signals() {
  if (::pipe(signal_pipe) != 0) throw IoError("cannot make a pipe for signals");
  std::signal(SIGINT, on_signal);
  std::signal(SIGTERM, on_signal);
  std::signal(SIGPIPE, SIG_IGN);
}

// The engine's thread; what ends it too soon ends the server as well.
template <class Loop>
class EngineThread {
 public:
  EngineThread(Loop& loop, int64_t threads)
      : loop_(loop), thread_([this, threads] {
          set_num_threads(threads);  // of this thread's parallel regions
          try {
            loop_.run();
          } catch (...) {
            failure_ = std::current_exception();
            [[maybe_unused]] const auto written = ::write(signal_pipe[1], "", 1);
          }
        }) {}
  void stop() {
    loop_.stop();
    thread_.join();
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  Loop& loop_;
  std::exception_ptr failure_;
  std::thread thread_;
};

void wait_for_signal() {
  char byte = 0;
  while (::read(signal_pipe[0], &byte, 1) < 0 && errno == EINTR) {
  }
}

template <class Loop>
int serve_until_signal(const ServeArguments& a, ModelServer& server, Loop& loop) {
  EngineThread engine(loop, a.threads);
  server.start();
  print_line(fmt::format("serving {} at http://{}:{}", a.name, a.server.http.host, server.port()));
  wait_for_signal();
  log_info(fmt::format("finishing what is in flight, at most {} s; once more ends at once", a.drain_seconds));
  const bool whole = server.drain(a.drain_seconds);
  if (!whole) log_warn("some requests were not finished in time");
  engine.stop();
  server.stop();
  return whole ? 0 : 1;
}

int serve_reward_model(const ServeArguments& a, const std::filesystem::path& folder) {
  ScoreLoop loop(RewardModel(folder, kernels::choose_device(a.device), a.max_batched_tokens * 8), a.max_samples);
  const ServedModel model(folder, a.name, loop.max_length(), load_model_config(folder).vocab_size);
  ServeMetrics metrics;
  ScoreService service(model, loop, metrics);
  ServerOptions options = a.server;
  options.chat_page = false;
  ModelServer server(model, service.routes(), metrics, nullptr, options);
  return serve_until_signal(a, server, loop);
}

int serve_text(const ServeArguments& a, const std::filesystem::path& folder) {
  const int64_t longest = std::min(a.max_model_len, load_model_config(folder).max_position_embeddings);
  const at::Device device = kernels::choose_device(a.device);
  std::unique_ptr<Decoder> decoder = load_decoder(folder, longest, device);
  const int64_t vocab = decoder->config().vocab_size;
  const ServedModel model(folder, a.name, longest, vocab);

  EngineLoopOptions options;
  options.max_samples = a.max_samples;
  options.max_wait_seconds = a.wait_seconds;
  // More at once make no more tokens a second on a CPU, and each of them slower.
  const int64_t at_once = a.max_num_seqs > 0 ? a.max_num_seqs : device.is_cpu() ? 64 : 256;
  options.generator.scheduler.max_num_seqs = at_once;
  options.generator.scheduler.max_num_batched_tokens = a.max_batched_tokens;
  options.generator.prefix_caching = !a.no_prefix_caching;
  options.generator.max_model_len = longest;
  options.generator.num_drawable = std::min<int64_t>(vocab, model.tokenizer().vocab_size());
  const int64_t useful = at_once * ((longest + kernels::kKvBlock - 1) / kernels::kKvBlock);
  options.generator.num_blocks =
      plan_kv_blocks(decoder->config(), a.kv_cache_mb << 20, longest, useful, decoder->value_bytes());
  EngineLoop loop(std::move(decoder), options, model.tokenizer());

  ServeMetrics metrics;
  TextServiceOptions service_options;
  service_options.request_seconds = a.request_seconds;
  service_options.allow_weight_updates = a.allow_weight_updates;
  service_options.load_weights = [=](const std::filesystem::path& from) {
    const std::filesystem::path other = resolve_model(from.string(), "path");
    if (load_model_config(other).vocab_size != vocab)
      throw ConfigError(other.string() + " is another model: its vocabulary differs from the served one's");
    return load_decoder(other, longest, device);
  };
  TextService service(model, loop, metrics, std::move(service_options));
  ModelServer server(
      model, service.routes(), metrics, [&loop] { return loop.counts(); }, a.server);
  return serve_until_signal(a, server, loop);
}

int serve(ServeArguments a) {
  set_num_threads(a.threads);
  a.server.http.max_body_bytes = static_cast<size_t>(a.max_body_mb) << 20;
  a.server.chat_page = !a.no_chat_page;
  if (a.server.api_key.empty())
    if (const char* key = std::getenv("TANDEM_API_KEY")) a.server.api_key = key;
  if (a.name.empty()) a.name = a.model;
  const std::filesystem::path folder = resolve_model(a.model);
  catch_signals();
  return WeightFolder(folder).contains("score.weight") ? serve_reward_model(a, folder) : serve_text(a, folder);
}

}  // namespace

void add_serve(CLI::App& app, Action& action) {
  auto* command = app.add_subcommand(
      "serve",
      "answer requests over HTTP: OpenAI's API and a chat page; for a reward model vLLM's /classify, /score, /pooling");
  auto a = std::make_shared<ServeArguments>();
  command->add_option("model", a->model, "model folder")->required();
  command->add_option("--served-model-name", a->name, "what requests call the model; else as it is named here");
  command->add_option("--host", a->server.http.host, "address to listen at; 0.0.0.0: all")->capture_default_str();
  command->add_option("--port", a->server.http.port, "0: any free one")
      ->check(CLI::Range(0, 65535))
      ->capture_default_str();
  command->add_option("--api-key", a->server.api_key, "asked of every request; else TANDEM_API_KEY, else none");
  const auto positive = [&](const char* name, auto& value, const char* help) {
    command->add_option(name, value, help)->check(CLI::Range(1, 1 << 30))->capture_default_str();
  };
  positive("--max-model-len", a->max_model_len, "prompt and reply together, tokens");
  command->add_option("--max-num-seqs", a->max_num_seqs, "replies computed at once; 0: 64 on a CPU, 256 on a GPU")
      ->check(CLI::Range(0, 1 << 30))
      ->capture_default_str();
  positive("--max-queue", a->max_samples, "replies in flight, waiting ones included; beyond it 429");
  command->add_option("--max-wait", a->wait_seconds, "seconds until a reply begins; beyond it 429; 0: no limit")
      ->check(CLI::Range(0, 1 << 30))
      ->capture_default_str();
  positive("--max-batched-tokens", a->max_batched_tokens, "tokens of a pass: prompts come in pieces of it");
  positive("--kv-cache-mb", a->kv_cache_mb, "at most; no more is taken than is of use");
  positive("--max-body-mb", a->max_body_mb, "of a request");
  positive("--max-connections", a->server.http.max_connections, "open at once; beyond it 429");
  positive("--request-timeout", a->request_seconds, "seconds for a reply, its waiting included");
  positive("--drain-timeout", a->drain_seconds, "seconds for what is in flight when SIGTERM comes");
  command->add_flag("--allow-weight-updates", a->allow_weight_updates, "POST /v1/weights loads another folder");
  command->add_flag("--no-prefix-caching", a->no_prefix_caching, "compute every prompt anew");
  command->add_flag("--no-chat-page", a->no_chat_page, "nothing at /");
  command->add_option("--device", a->device, "auto: a GPU if there is one")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}))
      ->capture_default_str();
  command->add_option("--threads", a->threads, "of the engine; 0: one a core")
      ->check(CLI::Range(0, 4096))
      ->capture_default_str();
  command->callback([&action, a] { action = [a] { return serve(*a); }; });
}

}  // namespace tandem
