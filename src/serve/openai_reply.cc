#include "serve/openai_reply.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

namespace tandem {
namespace {

using json = nlohmann::ordered_json;

std::string dumped(const json& value) { return value.dump(-1, ' ', false, json::error_handler_t::replace); }

json head_of(const ReplyHead& head, const std::string& object) {
  return {{"id", head.id},
          {"object", object},
          {"created", head.created},
          {"model", head.model},
          {"system_fingerprint", fmt::format("tandem-weights-{}", head.weights_version)},
          {"weights_version", head.weights_version}};
}

json usage_of(const Usage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.completion_tokens},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens}};
}

std::string token_text(const Tokenizer& tokenizer, TokenId id) { return tokenizer.decode({&id, 1}, false); }

// Texts of tokens need not differ: a piece of a character is U+FFFD.
std::string token_name(const Tokenizer& tokenizer, const TextRequest& request, TokenId id) {
  return request.tokens_as_ids ? fmt::format("token_id:{}", id) : token_text(tokenizer, id);
}

// As Python counts, which has characters for bytes.
size_t num_characters(const std::string& text) {
  return static_cast<size_t>(
      std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

json ids_of(std::span<const DrawnToken> tokens) {
  json ids = json::array();
  for (const DrawnToken& token : tokens) ids.push_back(token.id);
  return ids;
}

json chat_logprob(const Tokenizer& tokenizer, const TextRequest& request, TokenId id, float logprob) {
  const std::string text = token_text(tokenizer, id);
  json bytes = json::array();
  for (const char c : text) bytes.push_back(static_cast<unsigned char>(c));
  return {{"token", token_name(tokenizer, request, id)}, {"logprob", logprob}, {"bytes", bytes}};
}

json chat_logprobs(const Tokenizer& tokenizer, const TextRequest& request, std::span<const DrawnToken> tokens) {
  json content = json::array();
  for (const DrawnToken& token : tokens) {
    json one = chat_logprob(tokenizer, request, token.id, token.logprob);
    one["top_logprobs"] = json::array();
    for (const TokenLogprob& top : token.top)
      one["top_logprobs"].push_back(chat_logprob(tokenizer, request, top.id, top.logprob));
    content.push_back(std::move(one));
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

// `offset`: of the first token's text within the reply; moves on.
json completion_logprobs(const Tokenizer& tokenizer, const TextRequest& request, std::span<const DrawnToken> tokens,
                         size_t& offset) {
  json names = json::array(), logprobs = json::array(), tops = json::array(), offsets = json::array();
  for (const DrawnToken& token : tokens) {
    const std::string name = token_name(tokenizer, request, token.id);
    json top = json::object();
    top[name] = token.logprob;  // the drawn one is always told
    for (const TokenLogprob& other : token.top) top.emplace(token_name(tokenizer, request, other.id), other.logprob);
    names.push_back(name), logprobs.push_back(token.logprob), offsets.push_back(offset);
    tops.push_back(std::move(top));
    offset += num_characters(token_text(tokenizer, token.id));
  }
  json out = {{"text_offset", offsets}, {"token_logprobs", logprobs}, {"tokens", names}};
  out["top_logprobs"] = request.sampling.top_logprobs > 0 ? std::move(tops) : json();
  return out;
}

json call_of(const ReplyHead& head, uint32_t sample, size_t index, const ToolCall& call) {
  return {{"id", fmt::format("call_{}_{}_{}", head.id.substr(head.id.find('-') + 1), sample, index)},
          {"type", "function"},
          {"function", {{"name", call.name}, {"arguments", call.arguments}}}};
}

Usage usage_of(std::span<const AnsweredPrompt> answered) {
  Usage usage;
  for (const AnsweredPrompt& prompt : answered) {
    usage.prompt_tokens += std::ssize(prompt.ids);
    for (const SampleReply& sample : prompt.samples) usage.completion_tokens += std::ssize(sample.tokens);
  }
  return usage;
}

json chat_choice(const ReplyHead& head, const ChatRequest& request, uint32_t index, const SampleReply& sample,
                 const Tokenizer& tokenizer) {
  json message = {{"role", "assistant"}, {"content", sample.text}};
  bool called = false;
  if (!request.tools.empty()) {
    ToolCallScanner scanner;
    ToolPiece piece = scanner.push(sample.text);
    ToolPiece rest = scanner.finish();
    std::move(rest.calls.begin(), rest.calls.end(), std::back_inserter(piece.calls));
    called = !piece.calls.empty();
    if (called) {
      const std::string content = piece.content + rest.content;
      message["content"] = content.find_first_not_of(" \n\r\t") == std::string::npos ? json() : json(content);
      message["tool_calls"] = json::array();
      for (size_t i = 0; i < piece.calls.size(); ++i)
        message["tool_calls"].push_back(call_of(head, index, i, piece.calls[i]));
    }
  }
  json choice = {{"index", index}, {"message", std::move(message)}};
  choice["logprobs"] = request.logprobs ? chat_logprobs(tokenizer, request, sample.tokens) : json();
  choice["finish_reason"] = called ? "tool_calls" : finish_reason(sample.stop_reason);
  if (request.return_token_ids) choice["token_ids"] = ids_of(sample.tokens);
  return choice;
}

}  // namespace

const char* finish_reason(StopReason reason) { return reason == StopReason::kLength ? "length" : "stop"; }

std::string chat_reply(const ReplyHead& head, const ChatRequest& request, const AnsweredPrompt& answered,
                       const Tokenizer& tokenizer) {
  json reply = head_of(head, "chat.completion");
  reply["choices"] = json::array();
  for (size_t i = 0; i < answered.samples.size(); ++i)
    reply["choices"].push_back(chat_choice(head, request, static_cast<uint32_t>(i), answered.samples[i], tokenizer));
  reply["usage"] = usage_of(usage_of({&answered, 1}));
  if (request.return_token_ids) reply["prompt_token_ids"] = answered.ids;
  return dumped(reply);
}

std::string completion_reply(const ReplyHead& head, const CompletionRequest& request,
                             const std::vector<AnsweredPrompt>& answered, const Tokenizer& tokenizer) {
  json reply = head_of(head, "text_completion");
  reply["choices"] = json::array();
  for (const AnsweredPrompt& prompt : answered)
    for (const SampleReply& sample : prompt.samples) {
      const std::string before = !request.echo         ? ""
                                 : prompt.text.empty() ? tokenizer.decode(prompt.ids, false)
                                                       : prompt.text;
      json choice = {{"index", reply["choices"].size()}, {"text", before + sample.text}};
      size_t offset = 0;
      choice["logprobs"] = request.logprobs ? completion_logprobs(tokenizer, request, sample.tokens, offset) : json();
      choice["finish_reason"] = finish_reason(sample.stop_reason);
      if (request.return_token_ids) {
        choice["token_ids"] = ids_of(sample.tokens);
        choice["prompt_token_ids"] = prompt.ids;
      }
      reply["choices"].push_back(std::move(choice));
    }
  reply["usage"] = usage_of(usage_of(answered));
  return dumped(reply);
}

std::string generate_reply(const std::vector<AnsweredPrompt>& answered) {
  json texts = json::array();
  for (const AnsweredPrompt& prompt : answered)
    for (const SampleReply& sample : prompt.samples) texts.push_back(prompt.text + sample.text);
  return dumped({{"text", std::move(texts)}});
}

std::vector<std::string> ChatStream::pieces(const SampleUpdate& update) {
  Sample& sample = samples_[update.sample];
  std::vector<std::string> out;
  const auto send = [&](json delta, json logprobs, json ids, json reason) {
    json choice = {{"index", update.sample}, {"delta", std::move(delta)}};
    choice["logprobs"] = std::move(logprobs);
    choice["finish_reason"] = std::move(reason);
    if (!ids.is_null()) choice["token_ids"] = std::move(ids);
    json piece = head_of(head_, "chat.completion.chunk");
    piece["choices"] = json::array({std::move(choice)});
    if (!sample.begun && request_.return_token_ids)
      piece["prompt_token_ids"] = std::vector<TokenId>(prompt_ids_.begin(), prompt_ids_.end());
    sample.begun = true;
    out.push_back(dumped(piece));
  };
  if (!sample.begun) send({{"role", "assistant"}, {"content", ""}}, {}, {}, {});
  ToolPiece piece{update.text, {}};
  if (!request_.tools.empty()) {
    piece = sample.scanner.push(update.text);
    if (update.stop_reason) {
      ToolPiece rest = sample.scanner.finish();
      piece.content += rest.content;
      std::move(rest.calls.begin(), rest.calls.end(), std::back_inserter(piece.calls));
    }
  }
  const bool wants_tokens = request_.logprobs || request_.return_token_ids;
  if (wants_tokens) sample.unsent.insert(sample.unsent.end(), update.tokens.begin(), update.tokens.end());
  json delta = json::object();
  if (!piece.content.empty()) delta["content"] = piece.content;
  for (const ToolCall& call : piece.calls) {
    json one = {{"index", sample.num_calls}};
    one.update(call_of(head_, update.sample, sample.num_calls++, call));
    delta["tool_calls"].push_back(std::move(one));
  }
  const bool ends = update.stop_reason.has_value();
  if (delta.empty() && sample.unsent.empty() && !ends) return out;
  json reason;
  if (ends) reason = sample.num_calls > 0 ? "tool_calls" : finish_reason(*update.stop_reason);
  send(std::move(delta), request_.logprobs ? chat_logprobs(tokenizer_, request_, sample.unsent) : json(),
       request_.return_token_ids ? ids_of(sample.unsent) : json(), std::move(reason));
  sample.unsent.clear();
  return out;
}

std::vector<std::string> CompletionStream::pieces(size_t prompt, std::span<const TokenId> prompt_ids,
                                                  const SampleUpdate& update) {
  const size_t index = prompt * request_.n + update.sample;
  Sample& sample = samples_[index];
  const bool ends = update.stop_reason.has_value(), first = !sample.begun;
  std::string text = update.text;
  if (first && request_.echo) {
    const CompletionRequest::Input& input = request_.prompts[prompt];
    text = (input.ids ? tokenizer_.decode(*input.ids, false) : input.text) + text;
  }
  if (text.empty() && !ends && !request_.logprobs && !request_.return_token_ids) return {};
  sample.begun = true;
  json choice = {{"index", index}, {"text", text}};
  choice["logprobs"] =
      request_.logprobs ? completion_logprobs(tokenizer_, request_, update.tokens, sample.text_offset) : json();
  choice["finish_reason"] = ends ? json(finish_reason(*update.stop_reason)) : json();
  if (request_.return_token_ids) {
    choice["token_ids"] = ids_of(update.tokens);
    if (first) choice["prompt_token_ids"] = std::vector<TokenId>(prompt_ids.begin(), prompt_ids.end());
  }
  json piece = head_of(head_, "text_completion");
  piece["choices"] = json::array({std::move(choice)});
  return {dumped(piece)};
}

std::string usage_piece(const ReplyHead& head, const std::string& object, const Usage& usage) {
  json piece = head_of(head, object);
  piece["choices"] = json::array();
  piece["usage"] = usage_of(usage);
  return dumped(piece);
}

std::string error_body(int status, const std::string& message, const std::string& param) {
  const char* type = status == 401   ? "authentication_error"
                     : status == 404 ? "not_found_error"
                     : status == 429 ? "rate_limit_error"
                     : status >= 500 ? "server_error"
                                     : "invalid_request_error";
  json error = {{"message", message}, {"type", type}};
  error["param"] = param.empty() ? json() : json(param);
  error["code"] = status;
  return dumped({{"error", std::move(error)}});
}

}  // namespace tandem
