#include "serve/openai_request.h"

#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "serve/api_error.h"
#include "serve/json_fields.h"

namespace tandem {
namespace {

using json = nlohmann::ordered_json;
constexpr int64_t kMaxTokens = int64_t{1} << 30, kMaxTop = 20;
constexpr size_t kMaxStops = 16, kMaxStopIds = 64;

[[noreturn]] void refuse(const std::string& name, const std::string& what) {
  throw ApiError(400, name + " " + what, name);
}

void read_sampling(JsonFields& fields, const RequestLimits& limits, TextRequest& request) {
  SamplingParams& s = request.sampling;
  constexpr double kMost = 1e6;
  s.temperature = fields.number("temperature", 0, kMost).value_or(1.0);
  if (s.temperature < 1e-6) s.temperature = 0;  // as good as the likeliest
  s.top_p = fields.number("top_p", 0, 1).value_or(1.0);
  if (s.top_p == 0) refuse("top_p", "must be above 0");
  s.min_p = fields.number("min_p", 0, 1).value_or(0.0);
  s.top_k = fields.integer("top_k", -1, kMaxTokens).value_or(-1);
  if (s.top_k == 0) s.top_k = -1;  // vLLM takes both for all
  s.stop = fields.texts("stop", kMaxStops);
  for (const std::string& stop : s.stop)
    if (stop.empty()) refuse("stop", "holds an empty text, which would end every reply at once");
  if (const json* ids = fields.raw("stop_token_ids")) {
    if (!ids->is_array() || ids->size() > kMaxStopIds)
      refuse("stop_token_ids", fmt::format("must be a list of at most {} ids", kMaxStopIds));
    s.stop_token_ids = read_token_ids(*ids, "stop_token_ids", limits.vocab);
  }
  s.ignore_eos = fields.boolean("ignore_eos").value_or(false);
  s.min_tokens = fields.integer("min_tokens", 0, kMaxTokens).value_or(0);
  if (const auto seed = fields.integer("seed", std::numeric_limits<int64_t>::min(), INT64_MAX)) {
    s.seed = static_cast<uint64_t>(*seed);
    request.seeded = true;
  }
}

void read_limit(JsonFields& fields, const std::string& name, TextRequest& request) {
  const auto limit = fields.integer(name, 1, kMaxTokens);
  if (limit && request.max_tokens && *limit != *request.max_tokens) refuse(name, "contradicts max_tokens");
  if (limit) request.max_tokens = limit;
}

// What every endpoint of this family takes.
void read_common(JsonFields& fields, const RequestLimits& limits, TextRequest& request) {
  request.model = fields.text("model").value_or("");
  read_sampling(fields, limits, request);
  read_limit(fields, "max_tokens", request);
  request.n = static_cast<uint32_t>(fields.integer("n", 1, limits.max_samples).value_or(1));
  request.stream = fields.boolean("stream").value_or(false);
  if (const json* options = fields.raw("stream_options")) {
    if (!options->is_object()) refuse("stream_options", "must be an object");
    if (!request.stream) refuse("stream_options", "is only for stream=true");
    JsonFields more(*options);
    request.include_usage = more.boolean("include_usage").value_or(false);
    more.require("continuous_usage_stats", false, "usage comes in the last piece");
    more.ignore({"include_obfuscation"});
    more.finish();
  }
  request.return_token_ids = fields.boolean("return_token_ids").value_or(false);
  request.tokens_as_ids = fields.boolean("return_tokens_as_token_ids").value_or(false);
  fields.require("presence_penalty", 0, "log-probs are those of the model, which nothing is added to");
  fields.require("frequency_penalty", 0, "log-probs are those of the model, which nothing is added to");
  fields.require("repetition_penalty", 1, "log-probs are those of the model, which nothing is added to");
  fields.require("length_penalty", 1, "there is no beam search");
  fields.require("use_beam_search", false, "there is no beam search");
  fields.require("logit_bias", json::object(), "log-probs are those of the model, which nothing is added to");
  fields.require("include_stop_str_in_output", false, "a reply ends before its stop text");
  fields.require("skip_special_tokens", true, "special tokens have no text; ask for return_token_ids");
  fields.require("response_format", {{"type", "text"}}, "no grammar binds what is drawn");
  for (const char* name : {"guided_json", "guided_regex", "guided_choice", "guided_grammar", "structured_outputs"})
    fields.require(name, nullptr, "no grammar binds what is drawn");
  fields.ignore({"user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "priority",
                 "request_id", "spaces_between_special_tokens", "add_special_tokens"});
  if (request.max_tokens && request.sampling.min_tokens > *request.max_tokens)
    refuse("min_tokens", "is more than max_tokens");
}

bool all_numbers(const json& list) {
  for (const json& item : list)
    if (!item.is_number()) return false;
  return !list.empty();
}

std::vector<CompletionRequest::Input> read_prompts(const json* prompt, const RequestLimits& limits) {
  if (prompt == nullptr) refuse("prompt", "is missing: a text, a list of texts, token ids, or a list of lists of them");
  if (prompt->is_string()) return {{prompt->get<std::string>(), {}}};
  if (!prompt->is_array() || prompt->empty()) refuse("prompt", "must be a text, texts, token ids or lists of them");
  if (all_numbers(*prompt)) return {{{}, read_token_ids(*prompt, "prompt", limits.vocab)}};
  if (static_cast<int64_t>(prompt->size()) > limits.max_samples)
    refuse("prompt", fmt::format("holds {} prompts, at most {} are taken", prompt->size(), limits.max_samples));
  std::vector<CompletionRequest::Input> all;
  for (const json& one : *prompt) {
    if (one.is_string())
      all.push_back({one.get<std::string>(), {}});
    else if (one.is_array() && all_numbers(one))
      all.push_back({{}, read_token_ids(one, "prompt", limits.vocab)});
    else
      refuse("prompt", "must be a text, texts, token ids or lists of them");
  }
  return all;
}

// [{"type": "text", "text": "..."}, ...]
std::string joined_parts(const json& parts) {
  std::string text;
  for (const json& part : parts) {
    if (part.is_string()) {
      text += part.get<std::string>();
    } else if (part.is_object() && part.value("type", json()) == "text" && part.contains("text") &&
               part["text"].is_string()) {
      text += part["text"].get<std::string>();
    } else {
      refuse("messages", "hold a part that is no text; this model reads text only");
    }
  }
  return text;
}

json template_message(const json& message) {
  if (!message.is_object() || !message.contains("role") || !message["role"].is_string())
    refuse("messages", "must be objects with the text 'role'");
  json out = message;
  const bool has_calls = message.contains("tool_calls") && message["tool_calls"].is_array();
  if (!message.contains("content") || message["content"].is_null()) {
    if (!has_calls) refuse("messages", "need content: only a message of tool calls may be without");
    out["content"] = "";
  } else if (message["content"].is_array()) {
    out["content"] = joined_parts(message["content"]);
  } else if (!message["content"].is_string()) {
    refuse("messages", "need a text, or text parts, for content");
  }
  if (!has_calls) return out;
  for (json& call : out["tool_calls"]) {
    if (!call.is_object() || !call.contains("function") || !call["function"].is_object())
      refuse("messages", "hold a tool call without 'function'");
    json& function = call["function"];
    if (!function.contains("arguments") || !function["arguments"].is_string()) continue;
    json arguments = json::parse(function["arguments"].get<std::string>(), nullptr, false);
    if (!arguments.is_object()) refuse("messages", "hold a tool call whose arguments are not a JSON object");
    function["arguments"] = std::move(arguments);
  }
  return out;
}

json template_messages_of(const json& list) {
  if (!list.is_array() || list.empty()) refuse("messages", "must be a list of at least one message");
  json out = json::array();
  for (const json& message : list) out.push_back(template_message(message));
  return out;
}

void read_tools(JsonFields& fields, ChatRequest& request) {
  const json* tools = fields.raw("tools");
  const json* choice = fields.raw("tool_choice");
  fields.ignore({"parallel_tool_calls"});
  fields.require("functions", nullptr, "use tools");
  fields.require("function_call", nullptr, "use tool_choice");
  if (choice != nullptr && *choice != "auto" && *choice != "none")
    refuse("tool_choice", "can only be 'auto' or 'none' here: no grammar binds what is drawn");
  if (tools == nullptr) return;
  if (!tools->is_array()) refuse("tools", "must be a list");
  for (const json& tool : *tools)
    if (!tool.is_object() || tool.value("type", json()) != "function" || !tool.contains("function") ||
        !tool["function"].is_object() || !tool["function"].contains("name"))
      refuse("tools", "must be of the form {\"type\": \"function\", \"function\": {\"name\": ...}}");
  const bool none = choice != nullptr && *choice == "none";
  if (!none && !tools->empty()) request.tools = tools->dump();
}

}  // namespace

std::string template_messages(const std::string& list) {
  return template_messages_of(json::parse(list, nullptr, false)).dump();
}

CompletionRequest read_completion(const std::string& body, const RequestLimits& limits) {
  const json object = parse_request(body);
  JsonFields fields(object);
  CompletionRequest request;
  read_common(fields, limits, request);
  request.prompts = read_prompts(fields.raw("prompt"), limits);
  request.echo = fields.boolean("echo").value_or(false);
  if (const auto top = fields.integer("logprobs", 0, kMaxTop)) {
    request.logprobs = true;
    request.sampling.top_logprobs = *top;
  }
  if (request.echo && request.logprobs)
    refuse("logprobs", "of an echoed prompt are not given; leave one of the two out, or use tandem logprobs");
  if (const auto best = fields.integer("best_of", 1, limits.max_samples); best && *best != request.n)
    refuse("best_of", "must be n: every reply is given");
  fields.require("suffix", "", "the model writes on from a prompt only");
  fields.finish();
  return request;
}

ChatRequest read_chat(const std::string& body, const RequestLimits& limits) {
  const json object = parse_request(body);
  JsonFields fields(object);
  ChatRequest request;
  read_common(fields, limits, request);
  read_limit(fields, "max_completion_tokens", request);
  if (const json* messages = fields.raw("messages"))
    request.messages = template_messages_of(*messages).dump();
  else
    refuse("messages", "are missing");
  read_tools(fields, request);
  request.logprobs = fields.boolean("logprobs").value_or(false);
  const auto top = fields.integer("top_logprobs", 0, kMaxTop);
  if (top.value_or(0) > 0 && !request.logprobs) refuse("top_logprobs", "needs logprobs=true");
  request.sampling.top_logprobs = top.value_or(0);
  request.add_generation_prompt = fields.boolean("add_generation_prompt").value_or(true);
  if (const json* kwargs = fields.raw("chat_template_kwargs")) {
    if (!kwargs->is_object()) refuse("chat_template_kwargs", "must be an object");
    request.template_kwargs = kwargs->dump();
  }
  fields.require("modalities", {"text"}, "the model writes text");
  fields.require("audio", nullptr, "the model writes text");
  fields.require("chat_template", nullptr, "the model's own is used");
  fields.finish();
  return request;
}

CompletionRequest read_generate(const std::string& body, const RequestLimits& limits) {
  const json object = parse_request(body);
  JsonFields fields(object);
  CompletionRequest request;
  read_common(fields, limits, request);
  const json* prompt = fields.raw("prompt");
  if (prompt == nullptr || !prompt->is_string()) refuse("prompt", "must be a text");
  request.prompts = {{prompt->get<std::string>(), {}}};
  request.echo = true;
  fields.finish();
  return request;
}

}  // namespace tandem
