// What an OpenAI or vLLM client asks for, as typed values. Pure functions. Errors are ApiError of status 400.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "rollout/sampling_params.h"

namespace tandem {

// What a request is read against.
struct RequestLimits {
  int64_t vocab = 0;           // ids that a prompt may hold
  int64_t max_samples = 1024;  // replies of one request
};

// What chats and completions share.
struct TextRequest {
  std::string model;        // empty: the request names none
  SamplingParams sampling;  // without end ids; max_tokens counts only where `max_tokens` is there
  std::optional<int64_t> max_tokens;
  bool seeded = false;  // else sampling.seed is to be drawn
  uint32_t n = 1;
  bool stream = false, include_usage = false;
  bool logprobs = false;  // sampling.top_logprobs says how many beside the drawn one
  bool return_token_ids = false;
  bool tokens_as_ids = false;  // log-probs name tokens "token_id:5" instead of by their text
};

struct CompletionRequest : TextRequest {
  struct Input {
    std::string text;
    std::optional<std::vector<TokenId>> ids;  // instead of the text
  };
  std::vector<Input> prompts;
  bool echo = false;  // the reply begins with the prompt
};

struct ChatRequest : TextRequest {
  std::string messages;  // a JSON list, as a chat template takes it
  std::string tools;     // a JSON list; empty: none, or none that may be called
  std::string template_kwargs;
  bool add_generation_prompt = true;
};

CompletionRequest read_completion(const std::string& body, const RequestLimits& limits);
ChatRequest read_chat(const std::string& body, const RequestLimits& limits);
// vLLM's plain /generate: like a completion of one text, {"text": [...]} in reply.
CompletionRequest read_generate(const std::string& body, const RequestLimits& limits);

// Messages of an OpenAI request as templates take them: texts in parts are joined, arguments of tool calls are JSON
// again. `list` is the JSON text of a list.
std::string template_messages(const std::string& list);

}  // namespace tandem
