// Replies in OpenAI's form, with vLLM's additions (token_ids, prompt_token_ids) and the version of the weights. Numbers
// are written so that they read back exactly. Pure functions, but for ChatStream.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "serve/generation.h"
#include "serve/openai_request.h"
#include "serve/tool_calls.h"
#include "text/tokenizer.h"

namespace tandem {

struct ReplyHead {
  std::string id;       // "chatcmpl-..."
  std::string model;    // as it is served
  int64_t created = 0;  // seconds since 1970
  uint64_t weights_version = 0;
};

// One reply, whole.
struct SampleReply {
  std::string text;
  std::vector<DrawnToken> tokens;
  StopReason stop_reason = StopReason::kLength;
};

// One prompt and its replies.
struct AnsweredPrompt {
  std::string text;  // as it was asked; empty where it came as ids
  std::vector<TokenId> ids;
  std::vector<SampleReply> samples;
};

struct Usage {
  int64_t prompt_tokens = 0, completion_tokens = 0;
};

std::string chat_reply(const ReplyHead& head, const ChatRequest& request, const AnsweredPrompt& answered,
                       const Tokenizer& tokenizer);
std::string completion_reply(const ReplyHead& head, const CompletionRequest& request,
                             const std::vector<AnsweredPrompt>& answered, const Tokenizer& tokenizer);
std::string generate_reply(const std::vector<AnsweredPrompt>& answered);  // vLLM's /generate: prompt and reply

// The pieces of a streamed reply, each the JSON of one event.
class ChatStream {
 public:
  // All but `head` must outlive it.
  ChatStream(ReplyHead head, const ChatRequest& request, std::span<const TokenId> prompt_ids,
             const Tokenizer& tokenizer)
      : head_(std::move(head)), request_(request), prompt_ids_(prompt_ids), tokenizer_(tokenizer) {}
  std::vector<std::string> pieces(const SampleUpdate& update);

 private:
  struct Sample {
    bool begun = false;
    ToolCallScanner scanner;
    std::vector<DrawnToken> unsent;  // tokens without text so far
    size_t num_calls = 0;
  };
  ReplyHead head_;
  const ChatRequest& request_;
  std::span<const TokenId> prompt_ids_;
  const Tokenizer& tokenizer_;
  std::map<uint32_t, Sample> samples_;
};

class CompletionStream {
 public:
  CompletionStream(ReplyHead head, const CompletionRequest& request, const Tokenizer& tokenizer)
      : head_(std::move(head)), request_(request), tokenizer_(tokenizer) {}
  std::vector<std::string> pieces(size_t prompt, std::span<const TokenId> prompt_ids, const SampleUpdate& update);

 private:
  struct Sample {
    bool begun = false;
    size_t text_offset = 0;
  };
  ReplyHead head_;
  const CompletionRequest& request_;
  const Tokenizer& tokenizer_;
  std::map<size_t, Sample> samples_;  // by index of the choice
};

// What stream_options.include_usage asks for; `object` as in the other pieces.
std::string usage_piece(const ReplyHead& head, const std::string& object, const Usage& usage);

std::string error_body(int status, const std::string& message, const std::string& param = {});

const char* finish_reason(StopReason reason);

}  // namespace tandem
