#include "serve/score_service.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <ctime>
#include <nlohmann/json.hpp>

#include "data/tuning_set.h"
#include "serve/api_error.h"
#include "serve/json_fields.h"
#include "text/chat_mask.h"

namespace tandem {
namespace {

using json = nlohmann::ordered_json;
constexpr size_t kMaxInputs = 4096;

std::string dumped(const json& value) { return value.dump(-1, ' ', false, json::error_handler_t::replace); }

// Plain ids: scored at the last one.
TrajectoryPtr input_of(std::vector<TokenId> ids) {
  if (ids.size() < 2) throw ApiError(400, "input must have at least two tokens", "input");
  auto prompt = std::make_shared<Prompt>();
  auto reply = std::make_shared<Trajectory>();
  reply->response_ids = {ids.back()};
  ids.pop_back();
  prompt->token_ids = std::move(ids);
  reply->prompt = std::move(prompt);
  return reply;
}

TrajectoryPtr conversation_of(const ServedModel& model, const std::vector<ChatMessage>& messages,
                              const std::string& kwargs) {
  if (messages.empty() || messages.back().role != "assistant")
    throw ApiError(400, "messages must end with the assistant's, which is what is scored", "messages");
  MaskedChat chat = encode_masked(model.chat_template(), model.tokenizer(), messages, kwargs.empty() ? "{}" : kwargs,
                                  model.special().eos, messages.size() - 1);
  end_with_reply(chat);
  TrajectoryPtr reply = make_sample(std::move(chat));
  if (!reply) throw ApiError(400, "the model's chat template leaves nothing of the last message", "messages");
  return reply;
}

std::vector<ChatMessage> messages_of(const json& list) {
  std::vector<ChatMessage> messages;
  for (const json& message : json::parse(template_messages(list.dump())))
    messages.push_back({message["role"], message["content"]});
  return messages;
}

std::vector<TrajectoryPtr> inputs_of(const ServedModel& model, JsonFields& fields) {
  const json* messages = fields.raw("messages");
  const json* input = fields.raw("input");
  const json* kwargs = fields.raw("chat_template_kwargs");
  if ((messages == nullptr) == (input == nullptr)) throw ApiError(400, "give either messages or input", "input");
  if (kwargs != nullptr && !kwargs->is_object())
    throw ApiError(400, "chat_template_kwargs must be an object", "chat_template_kwargs");
  if (messages != nullptr)
    return {conversation_of(model, messages_of(*messages), kwargs == nullptr ? "" : kwargs->dump())};
  const auto ids = [&](const json& list) { return input_of(read_token_ids(list, "input", model.vocab_size())); };
  if (input->is_string()) return {input_of(model.tokenizer().encode(input->get<std::string>()))};
  if (!input->is_array() || input->empty() || input->size() > kMaxInputs)
    throw ApiError(400, fmt::format("input must be a text, token ids, or a list of at most {} of them", kMaxInputs),
                   "input");
  if (input->front().is_number()) return {ids(*input)};
  std::vector<TrajectoryPtr> all;
  for (const json& one : *input) {
    if (one.is_string())
      all.push_back(input_of(model.tokenizer().encode(one.get<std::string>())));
    else if (one.is_array())
      all.push_back(ids(one));
    else
      throw ApiError(400, "input must be a text, token ids, or a list of them", "input");
  }
  return all;
}

// vLLM's names for one thing, the newest first.
bool activation(JsonFields& fields, bool otherwise) {
  std::optional<bool> wanted;
  for (const char* name : {"use_activation", "activation", "softmax"})
    if (const auto value = fields.boolean(name); value && !wanted) wanted = value;
  return wanted.value_or(otherwise);
}

void read_rest(const ServedModel& model, JsonFields& fields) {
  model.check_name(fields.text("model").value_or(""));
  fields.require("truncate_prompt_tokens", nullptr, "inputs are scored whole");
  fields.require("encoding_format", "float", "scores are numbers");
  fields.require("dimensions", nullptr, "a score is one number");
  fields.require("add_generation_prompt", false, "what is scored is the last message");
  fields.ignore({"user", "priority", "request_id", "add_special_tokens", "task"});
  fields.finish();
}

json activated(float score, bool activate) {
  return activate ? json(1.0 / (1.0 + std::exp(-static_cast<double>(score)))) : json(score);
}

json head_of(const ServedModel& model, const std::string& prefix, int64_t prompt_tokens) {
  const auto now = std::chrono::system_clock::now().time_since_epoch().count();
  return {{"id", fmt::format("{}-{:x}", prefix, now)},
          {"object", "list"},
          {"created", static_cast<int64_t>(std::time(nullptr))},
          {"model", model.name()},
          {"data", json::array()},
          {"usage", {{"prompt_tokens", prompt_tokens}, {"completion_tokens", 0}, {"total_tokens", prompt_tokens}}}};
}

}  // namespace

std::vector<HttpRoute> ScoreService::routes() {
  std::vector<HttpRoute> all = {
      {"POST", "/classify", [this](const HttpRequest& http) { return classify(http); }},
      {"POST", "/pooling", [this](const HttpRequest& http) { return pooling(http); }},
      {"POST", "/score", [this](const HttpRequest& http) { return score(http); }},
      {"POST", "/v1/score", [this](const HttpRequest& http) { return score(http); }},
  };
  for (const char* path : {"/v1/chat/completions", "/v1/completions", "/generate", "/v1/embeddings"})
    all.push_back({"POST", path, [](const HttpRequest& http) -> HttpReply {
                     throw ApiError(400, fmt::format("{} needs another model; this one scores replies: /classify, "
                                                     "/score, /pooling",
                                                     http.path));
                   }});
  return all;
}

ScoreService::Scored ScoreService::score_all(std::vector<TrajectoryPtr> replies) {
  Scored scored;
  for (const TrajectoryPtr& reply : replies) {
    const auto length = std::ssize(reply->prompt->token_ids) + std::ssize(reply->response_ids);
    if (length > loop_.max_length())
      throw ApiError(400, fmt::format("an input has {} tokens, the model was made for {}", length, loop_.max_length()));
    scored.prompt_tokens += length;
  }
  scored.scores = loop_.submit(std::move(replies)).get();
  for (const float score : scored.scores)
    if (!std::isfinite(score))
      throw ApiError(500, "the model gives a score that is not finite; its weights are broken");
  metrics_.add_scored(std::ssize(scored.scores));
  return scored;
}

HttpReply ScoreService::reply_to(const std::string& kind, std::vector<TrajectoryPtr> inputs, bool activate,
                                 json (*entry)(json value)) {
  const Scored scored = score_all(std::move(inputs));
  json reply = head_of(model_, kind, scored.prompt_tokens);
  for (size_t i = 0; i < scored.scores.size(); ++i) {
    json row = {{"index", i}};
    row.update(entry(activated(scored.scores[i], activate)));
    reply["data"].push_back(std::move(row));
  }
  return {200, "application/json", dumped(reply), {}, {}};
}

HttpReply ScoreService::classify(const HttpRequest& http) {
  const json object = parse_request(http.body);
  JsonFields fields(object);
  const bool activate = activation(fields, true);
  std::vector<TrajectoryPtr> inputs = inputs_of(model_, fields);
  read_rest(model_, fields);
  return reply_to("classify", std::move(inputs), activate, [](json value) -> json {
    return {{"label", "LABEL_0"}, {"probs", json::array({std::move(value)})}, {"num_classes", 1}};
  });
}

HttpReply ScoreService::pooling(const HttpRequest& http) {
  const json object = parse_request(http.body);
  JsonFields fields(object);
  const bool activate = activation(fields, false);
  std::vector<TrajectoryPtr> inputs = inputs_of(model_, fields);
  read_rest(model_, fields);
  return reply_to("pool", std::move(inputs), activate, [](json value) -> json {
    return {{"object", "pooling"}, {"data", json::array({std::move(value)})}};
  });
}

HttpReply ScoreService::score(const HttpRequest& http) {
  const json object = parse_request(http.body);
  JsonFields fields(object);
  const bool activate = activation(fields, true);
  const auto first = fields.texts("text_1", kMaxInputs), second = fields.texts("text_2", kMaxInputs);
  read_rest(model_, fields);
  if (first.empty() || second.empty())
    throw ApiError(400, "text_1 and text_2 must be texts or lists of them", "text_1");
  if (first.size() != 1 && first.size() != second.size())
    throw ApiError(400, "text_1 must be one text, or as many as text_2", "text_1");
  std::vector<TrajectoryPtr> inputs;
  for (size_t i = 0; i < second.size(); ++i)
    inputs.push_back(
        conversation_of(model_, {{"user", first[first.size() == 1 ? 0 : i]}, {"assistant", second[i]}}, {}));
  return reply_to("score", std::move(inputs), activate, [](json value) -> json {
    return {{"object", "score"}, {"score", std::move(value)}};
  });
}

}  // namespace tandem
