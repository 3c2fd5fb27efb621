#include "serve/text_service.h"

#include <fmt/format.h>

#include <ctime>
#include <iterator>
#include <nlohmann/json.hpp>
#include <random>

#include "serve/api_error.h"
#include "serve/json_fields.h"

namespace tandem {
namespace {

using json = nlohmann::ordered_json;
constexpr auto kLook = std::chrono::milliseconds(200);  // how often a waiting connection looks for its client
constexpr int64_t kCompletionTokens = 16;               // OpenAI's default

std::string dumped(const json& value) { return value.dump(-1, ' ', false, json::error_handler_t::replace); }

std::string event(const std::string& data) { return "data: " + data + "\n\n"; }

double seconds_between(ServeClock::time_point from, ServeClock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

uint64_t random_seed() {
  std::random_device device;
  return (static_cast<uint64_t>(device()) << 32) | device();
}

HttpReply with_version(std::string body, uint64_t version) {
  return {200, "application/json", std::move(body), {{"X-Weights-Version", std::to_string(version)}}, {}};
}

}  // namespace

// Generations of one request; what is unfinished when it goes is cancelled.
class TextService::Flight {
 public:
  Flight(EngineLoop& loop, std::vector<GenerationJob> jobs, int seconds)
      : loop_(loop), until_(ServeClock::now() + std::chrono::seconds(seconds)), all_(loop.submit(std::move(jobs))) {}
  Flight(const Flight&) = delete;
  Flight& operator=(const Flight&) = delete;
  ~Flight() {
    for (const GenerationPtr& generation : all_)
      if (!generation->finished()) loop_.cancel(generation);
  }

  const std::vector<GenerationPtr>& all() const { return all_; }

  // Waits for news of one of them. ApiError where the client is gone or the time is up.
  std::vector<SampleUpdate> take(size_t i, std::chrono::milliseconds at_most, const std::function<bool()>& connected) {
    const auto now = ServeClock::now();
    if (now >= until_) throw ApiError(504, "the reply took longer than this server allows (--request-timeout)");
    if (!connected()) throw ApiError(499, "the client is gone");
    return all_[i]->take(std::min(now + at_most, until_));
  }

 private:
  EngineLoop& loop_;
  const ServeClock::time_point until_;
  std::vector<GenerationPtr> all_;
};

struct TextService::Stream {
  std::string object;
  ReplyHead head;
  bool include_usage = false;
  std::vector<AnsweredPrompt> prompts;
  std::unique_ptr<Flight> flight;
  std::function<bool()> connected;
  // The pieces of an update, made once the version of the weights is known.
  std::function<std::vector<std::string>(size_t prompt, const SampleUpdate&)> pieces;
  std::function<void()> begin;
  size_t first_prompt = 0;
  std::vector<SampleUpdate> first;
};

TextService::TextService(const ServedModel& model, EngineLoop& loop, ServeMetrics& metrics, TextServiceOptions options)
    : model_(model),
      loop_(loop),
      metrics_(metrics),
      options_(std::move(options)),
      seed_(random_seed()),
      weights_path_(model.folder().string()) {}

std::vector<HttpRoute> TextService::routes() {
  std::vector<HttpRoute> all = {
      {"POST", "/v1/chat/completions", [this](const HttpRequest& http) { return chat(http); }},
      {"POST", "/v1/completions", [this](const HttpRequest& http) { return completion(http); }},
      {"POST", "/generate", [this](const HttpRequest& http) { return generate(http); }},
      {"POST", "/tokenize", [this](const HttpRequest& http) { return tokenize(http); }},
      {"POST", "/detokenize", [this](const HttpRequest& http) { return detokenize(http); }},
      {"GET", "/v1/weights", [this](const HttpRequest&) { return weights(); }},
      {"POST", "/v1/weights", [this](const HttpRequest& http) { return update_weights(http); }},
  };
  for (const char* path : {"/v1/embeddings", "/score", "/v1/score", "/classify", "/pooling"})
    all.push_back({"POST", path, [](const HttpRequest& http) -> HttpReply {
                     throw ApiError(
                         400, fmt::format("{} needs a model that embeds or scores; this one writes text", http.path));
                   }});
  return all;
}

RequestLimits TextService::limits() const { return {model_.vocab_size(), loop_.max_samples()}; }

uint64_t TextService::random_bits() { return Philox(seed_, ++num_drawn_).next(); }

ReplyHead TextService::new_head(const std::string& prefix) {
  return {fmt::format("{}-{:016x}", prefix, random_bits()), model_.name(), static_cast<int64_t>(std::time(nullptr)), 0};
}

GenerationJob TextService::job_of(const TextRequest& request, std::vector<TokenId> ids, int64_t default_tokens) {
  GenerationJob job{std::move(ids), request.sampling, request.n, request.stream};
  const int64_t length = std::ssize(job.prompt_ids), room = model_.max_model_len() - length;
  if (room < 1)
    throw ApiError(400,
                   fmt::format("the prompt has {} tokens and leaves no room for a reply: the limit of both "
                               "together is {}",
                               length, model_.max_model_len()),
                   "prompt");
  if (request.max_tokens.value_or(1) > room)
    throw ApiError(400,
                   fmt::format("the prompt's {} tokens and max_tokens={} are more than the {} tokens that prompt "
                               "and reply may have together",
                               length, *request.max_tokens, model_.max_model_len()),
                   "max_tokens");
  job.params.max_tokens = request.max_tokens.value_or(default_tokens > 0 ? std::min(default_tokens, room) : room);
  if (job.params.min_tokens > job.params.max_tokens) throw ApiError(400, "min_tokens leaves no room", "min_tokens");
  job.params.eos_ids = model_.special().eos;
  if (!request.seeded) job.params.seed = random_bits();
  return job;
}

std::vector<AnsweredPrompt> TextService::prompts_of(const CompletionRequest& request) const {
  std::vector<AnsweredPrompt> prompts;
  for (const CompletionRequest::Input& input : request.prompts)
    prompts.push_back({input.text, input.ids ? *input.ids : model_.tokenizer().encode(input.text), {}});
  return prompts;
}

std::vector<GenerationJob> TextService::jobs_of(const CompletionRequest& request,
                                                const std::vector<AnsweredPrompt>& prompts) {
  std::vector<GenerationJob> jobs;
  for (const AnsweredPrompt& prompt : prompts) jobs.push_back(job_of(request, prompt.ids, kCompletionTokens));
  return jobs;
}

void TextService::measure(const Generation& generation, int64_t tokens) {
  const auto begun = generation.begun();
  if (!begun) return;
  metrics_.add_first_token(seconds_between(generation.submitted(), *begun));
  const double per_sample = static_cast<double>(tokens) / generation.job().num_samples;
  if (per_sample > 1) metrics_.add_token_pace(seconds_between(*begun, ServeClock::now()) / (per_sample - 1));
}

// Runs the jobs to their end; replies go into `prompts`, the version into `head`.
void TextService::answer(const HttpRequest& http, std::vector<GenerationJob> jobs, std::vector<AnsweredPrompt>& prompts,
                         ReplyHead& head) {
  Flight flight(loop_, std::move(jobs), options_.request_seconds);
  for (size_t i = 0; i < prompts.size(); ++i) {
    const Generation& generation = *flight.all()[i];
    prompts[i].samples.resize(generation.job().num_samples);
    int64_t tokens = 0;
    while (!generation.finished())
      for (SampleUpdate& update : flight.take(i, kLook, http.connected)) {
        SampleReply& sample = prompts[i].samples[update.sample];
        sample.text += update.text;
        tokens += std::ssize(update.tokens);
        std::move(update.tokens.begin(), update.tokens.end(), std::back_inserter(sample.tokens));
        sample.stop_reason = update.stop_reason.value_or(sample.stop_reason);
      }
    measure(generation, tokens);
    head.weights_version = generation.weights_version();
  }
}

HttpReply TextService::chat(const HttpRequest& http) {
  auto request = std::make_shared<const ChatRequest>(read_chat(http.body, limits()));
  model_.check_name(request->model);
  std::vector<AnsweredPrompt> prompts(1);
  prompts[0].ids = model_.encode(*request);
  std::vector<GenerationJob> jobs = {job_of(*request, prompts[0].ids, 0)};
  ReplyHead head = new_head("chatcmpl");
  if (!request->stream) {
    answer(http, std::move(jobs), prompts, head);
    return with_version(chat_reply(head, *request, prompts[0], model_.tokenizer()), head.weights_version);
  }
  auto stream = std::make_shared<Stream>();
  stream->object = "chat.completion.chunk", stream->head = head, stream->include_usage = request->include_usage;
  stream->prompts = std::move(prompts);
  stream->begin = [this, request, s = stream.get()] {
    auto writer = std::make_shared<ChatStream>(s->head, *request, s->prompts[0].ids, model_.tokenizer());
    s->pieces = [request, writer](size_t, const SampleUpdate& update) { return writer->pieces(update); };
  };
  return stream_reply(http, std::move(jobs), std::move(stream));
}

HttpReply TextService::completion(const HttpRequest& http) {
  auto request = std::make_shared<const CompletionRequest>(read_completion(http.body, limits()));
  model_.check_name(request->model);
  std::vector<AnsweredPrompt> prompts = prompts_of(*request);
  std::vector<GenerationJob> jobs = jobs_of(*request, prompts);
  ReplyHead head = new_head("cmpl");
  if (!request->stream) {
    answer(http, std::move(jobs), prompts, head);
    return with_version(completion_reply(head, *request, prompts, model_.tokenizer()), head.weights_version);
  }
  auto stream = std::make_shared<Stream>();
  stream->object = "text_completion", stream->head = head, stream->include_usage = request->include_usage;
  stream->prompts = std::move(prompts);
  stream->begin = [this, request, s = stream.get()] {
    auto writer = std::make_shared<CompletionStream>(s->head, *request, model_.tokenizer());
    s->pieces = [request, writer, s](size_t prompt, const SampleUpdate& update) {
      return writer->pieces(prompt, s->prompts[prompt].ids, update);
    };
  };
  return stream_reply(http, std::move(jobs), std::move(stream));
}

HttpReply TextService::generate(const HttpRequest& http) {
  const CompletionRequest request = read_generate(http.body, limits());
  if (request.stream) throw ApiError(400, "/generate does not stream here; use /v1/completions", "stream");
  std::vector<AnsweredPrompt> prompts = prompts_of(request);
  ReplyHead head;
  answer(http, jobs_of(request, prompts), prompts, head);
  return with_version(generate_reply(prompts), head.weights_version);
}

// Waits for the first news, so that what fails at once is an error with a status and the version is known.
HttpReply TextService::stream_reply(const HttpRequest& http, std::vector<GenerationJob> jobs,
                                    std::shared_ptr<Stream> stream) {
  stream->connected = http.connected;
  stream->flight = std::make_unique<Flight>(loop_, std::move(jobs), options_.request_seconds);
  while (stream->first.empty()) stream->first = stream->flight->take(0, kLook, http.connected);
  stream->head.weights_version = stream->flight->all()[0]->weights_version();
  stream->begin();
  HttpReply reply = with_version({}, stream->head.weights_version);
  reply.content_type = "text/event-stream";
  reply.headers.emplace_back("Cache-Control", "no-cache");
  reply.headers.emplace_back("X-Accel-Buffering", "no");
  reply.stream = [this, stream](const ByteSink& sink) { write_stream(*stream, sink); };
  return reply;
}

void TextService::write_stream(Stream& stream, const ByteSink& sink) {
  const auto& all = stream.flight->all();
  std::vector<int64_t> tokens(all.size());
  Usage usage;
  const auto send = [&](size_t prompt, const std::vector<SampleUpdate>& updates) {
    std::string out;
    for (const SampleUpdate& update : updates) {
      tokens[prompt] += std::ssize(update.tokens);
      for (const std::string& piece : stream.pieces(prompt, update)) out += event(piece);
    }
    return out.empty() || sink(out);
  };
  try {
    if (!send(0, stream.first)) return;
    for (size_t i = 0; i < all.size(); ++i) {  // of several prompts one after the other; all are computed together
      while (!all[i]->finished())
        if (!send(i, stream.flight->take(i, kLook, stream.connected))) return;
      measure(*all[i], tokens[i]);
      usage.prompt_tokens += std::ssize(stream.prompts[i].ids);
      usage.completion_tokens += tokens[i];
    }
    if (stream.include_usage) sink(event(usage_piece(stream.head, stream.object, usage)));
  } catch (const ApiError& error) {
    sink(event(error_body(error.status(), error.what())));
  } catch (const std::exception& error) {
    sink(event(error_body(500, error.what())));
  }
  sink(event("[DONE]"));
}

HttpReply TextService::tokenize(const HttpRequest& http) const {
  const json object = parse_request(http.body);
  JsonFields fields(object);
  model_.check_name(fields.text("model").value_or(""));
  fields.ignore({"add_special_tokens"});
  std::vector<TokenId> ids;
  if (const json* messages = fields.raw("messages")) {
    ChatRequest chat;
    chat.messages = template_messages(messages->dump());
    chat.add_generation_prompt = fields.boolean("add_generation_prompt").value_or(true);
    ids = model_.encode(chat);
  } else if (const auto prompt = fields.text("prompt")) {
    ids = model_.tokenizer().encode(*prompt);
  } else {
    throw ApiError(400, "prompt is missing: a text, or messages", "prompt");
  }
  fields.finish();
  return {200,
          "application/json",
          dumped({{"count", ids.size()}, {"max_model_len", model_.max_model_len()}, {"tokens", ids}}),
          {},
          {}};
}

HttpReply TextService::detokenize(const HttpRequest& http) const {
  const json object = parse_request(http.body);
  JsonFields fields(object);
  model_.check_name(fields.text("model").value_or(""));
  const json* tokens = fields.raw("tokens");
  if (tokens == nullptr || !tokens->is_array()) throw ApiError(400, "tokens must be a list of token ids", "tokens");
  fields.finish();
  const auto ids = read_token_ids(*tokens, "tokens", model_.vocab_size());
  return {200, "application/json", dumped({{"prompt", model_.tokenizer().decode(ids, false)}}), {}, {}};
}

HttpReply TextService::weights() const {
  const uint64_t version = loop_.counts().weights_version;
  const std::lock_guard lock(path_mutex_);
  return with_version(dumped({{"weights_version", version}, {"path", weights_path_}}), version);
}

HttpReply TextService::update_weights(const HttpRequest& http) {
  if (!options_.allow_weight_updates)
    throw ApiError(403, "this server keeps its weights; start it with --allow-weight-updates");
  const json object = parse_request(http.body);
  JsonFields fields(object);
  const auto path = fields.text("path");
  if (!path) throw ApiError(400, "path is missing: a model folder on the server's machine", "path");
  const auto version = fields.integer("version", 0, INT64_MAX);
  fields.finish();
  const std::lock_guard one_at_a_time(updating_);
  std::unique_ptr<Decoder> decoder = options_.load_weights(*path);
  const std::optional<uint64_t> wanted = version ? std::optional(static_cast<uint64_t>(*version)) : std::nullopt;
  const uint64_t now = loop_.swap_weights(std::move(decoder), wanted).get();
  {
    const std::lock_guard lock(path_mutex_);
    weights_path_ = *path;
  }
  return with_version(dumped({{"weights_version", now}, {"path", *path}}), now);
}

}  // namespace tandem
