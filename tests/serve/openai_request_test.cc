#include "serve/openai_request.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "serve/api_error.h"

namespace tandem {
namespace {

using json = nlohmann::json;
constexpr RequestLimits kLimits{.vocab = 300, .max_samples = 64};

// The message of the 400 that `read` gives; `param` must be the field that it names.
template <class F>
std::string refused(const std::string& param, const F& read) {
  try {
    read();
  } catch (const ApiError& error) {
    EXPECT_EQ(error.status(), 400);
    EXPECT_EQ(error.param(), param) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "was taken";
  return "";
}

std::string chat_refused(const std::string& param, const std::string& more) {
  return refused(param, [&] {
    read_chat(R"({"messages": [{"role": "user", "content": "hi"}])" + (more.empty() ? "" : ", " + more) + "}", kLimits);
  });
}

TEST(OpenAiRequest, DefaultsAreOpenAis) {
  const ChatRequest chat = read_chat(R"({"model": "m", "messages": [{"role": "user", "content": "hi"}]})", kLimits);
  EXPECT_EQ(chat.model, "m");
  EXPECT_EQ(chat.sampling.temperature, 1.0);
  EXPECT_EQ(chat.sampling.top_p, 1.0);
  EXPECT_EQ(chat.n, 1U);
  EXPECT_FALSE(chat.stream || chat.logprobs || chat.seeded || chat.max_tokens.has_value());
  EXPECT_EQ(json::parse(chat.messages), json::parse(R"([{"role": "user", "content": "hi"}])"));
}

TEST(OpenAiRequest, EverythingIsRead) {
  const ChatRequest chat = read_chat(
      R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}],
          "temperature": 0.5, "top_p": 0.9, "top_k": 7, "min_p": 0.1, "max_completion_tokens": 5, "min_tokens": 2,
          "n": 3, "seed": -1, "stop": ["x", "yy"], "stop_token_ids": [1, 2], "ignore_eos": true, "stream": true,
          "stream_options": {"include_usage": true}, "logprobs": true, "top_logprobs": 4, "return_token_ids": true,
          "user": "me", "presence_penalty": 0.0, "response_format": {"type": "text"}, "logit_bias": {},
          "chat_template_kwargs": {"enable_thinking": false}})",
      kLimits);
  EXPECT_EQ(chat.sampling.temperature, 0.5);
  EXPECT_EQ(chat.sampling.top_p, 0.9);
  EXPECT_EQ(chat.sampling.top_k, 7);
  EXPECT_EQ(chat.sampling.min_p, 0.1);
  EXPECT_EQ(chat.max_tokens, 5);
  EXPECT_EQ(chat.sampling.min_tokens, 2);
  EXPECT_EQ(chat.n, 3U);
  EXPECT_TRUE(chat.seeded);
  EXPECT_EQ(chat.sampling.seed, ~uint64_t{0});
  EXPECT_EQ(chat.sampling.stop, (std::vector<std::string>{"x", "yy"}));
  EXPECT_EQ(chat.sampling.stop_token_ids, (std::vector<TokenId>{1, 2}));
  EXPECT_TRUE(chat.sampling.ignore_eos && chat.stream && chat.include_usage && chat.logprobs && chat.return_token_ids);
  EXPECT_EQ(chat.sampling.top_logprobs, 4);
  EXPECT_EQ(json::parse(chat.messages)[0]["content"], "ab");
  EXPECT_EQ(json::parse(chat.template_kwargs), json::parse(R"({"enable_thinking": false})"));
}

TEST(OpenAiRequest, WhatCannotBeHonouredIsRefused) {
  const std::string words = chat_refused("response_format", R"("response_format": {"type": "json_object"})");
  EXPECT_NE(words.find("grammar"), std::string::npos) << words;
  chat_refused("presence_penalty", R"("presence_penalty": 0.5)");
  chat_refused("logit_bias", R"("logit_bias": {"5": 1})");
  chat_refused("tool_choice", R"("tool_choice": "required")");
  chat_refused("temperatur", R"("temperatur": 1)");
  chat_refused("temperature", R"("temperature": -0.1)");
  chat_refused("temperature", R"("temperature": "hot")");
  chat_refused("n", R"("n": 0)");
  chat_refused("n", R"("n": 65)");
  chat_refused("n", R"("n": 1.5)");
  chat_refused("n", R"("n": 18446744073709551615)");
  chat_refused("top_logprobs", R"("top_logprobs": 2)");
  chat_refused("top_logprobs", R"("logprobs": true, "top_logprobs": 21)");
  chat_refused("stop", R"("stop": [""])");
  chat_refused("stop", R"("stop": 5)");
  chat_refused("stop_token_ids", R"("stop_token_ids": [300])");
  chat_refused("stream_options", R"("stream_options": {"include_usage": true})");
  chat_refused("max_completion_tokens", R"("max_tokens": 3, "max_completion_tokens": 4)");
  chat_refused("min_tokens", R"("max_tokens": 3, "min_tokens": 4)");
}

TEST(OpenAiRequest, WhatIsNoRequestIsRefused) {
  for (const char* body : {"", "[]", "{", "5", "\xff", R"({"a": 1e999})", R"({"messages": "\ud800"})"})
    refused("", [&] { read_chat(body, kLimits); });
  refused("", [] { read_chat(std::string(100000, '['), kLimits); });
  refused("messages", [] { read_chat("{}", kLimits); });
  for (const char* messages :
       {"[]", "5", "[5]", R"([{"content": "x"}])", R"([{"role": "user"}])", R"([{"role": "user", "content": 5}])",
        R"([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}])",
        R"([{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "not json"}}]}])"})
    refused("messages", [&] { read_chat(R"({"messages": )" + std::string(messages) + "}", kLimits); });
}

TEST(OpenAiRequest, ToolsAndTheirCalls) {
  const std::string tool = R"({"type": "function", "function": {"name": "f", "parameters": {}}})";
  const std::string messages =
      R"([{"role": "user", "content": "hi"}, {"role": "assistant", "content": null, "tool_calls": [{"id": "1",
          "type": "function", "function": {"name": "f", "arguments": "{\"x\": 1}"}}]},
          {"role": "tool", "tool_call_id": "1", "content": "2"}])";
  const auto body = [&](const std::string& more) {
    return R"({"messages": )" + messages + R"(, "tools": [)" + tool + "]" + more + "}";
  };
  const ChatRequest chat = read_chat(body(""), kLimits);
  EXPECT_EQ(json::parse(chat.tools), json::parse("[" + tool + "]"));
  const json read = json::parse(chat.messages);
  EXPECT_EQ(read[1]["tool_calls"][0]["function"]["arguments"], json::parse(R"({"x": 1})"))
      << "templates want an object";
  EXPECT_EQ(read[1]["content"], "");
  EXPECT_EQ(read_chat(body(R"(, "tool_choice": "none")"), kLimits).tools, "");
  EXPECT_NE(read_chat(body(R"(, "tool_choice": "auto")"), kLimits).tools, "");
}

TEST(OpenAiRequest, PromptsOfCompletions) {
  const auto prompts = [](const std::string& prompt) {
    return read_completion(R"({"prompt": )" + prompt + "}", kLimits).prompts;
  };
  EXPECT_EQ(prompts(R"("hi")")[0].text, "hi");
  EXPECT_EQ(prompts(R"(["a", "b"])").size(), 2U);
  EXPECT_EQ(prompts("[1, 2]").size(), 1U);
  EXPECT_EQ(*prompts("[1, 2]")[0].ids, (std::vector<TokenId>{1, 2}));
  EXPECT_EQ(*prompts(R"(["a", [3]])")[1].ids, (std::vector<TokenId>{3}));
  for (const char* prompt : {"5", "[]", "[[]]", "[300]", "[-1]", "[1.5]", "[null]", "{}", "[1, \"a\"]"})
    refused("prompt", [&] { prompts(prompt); });
  const CompletionRequest request = read_completion(R"({"prompt": "x", "logprobs": 2, "max_tokens": 3})", kLimits);
  EXPECT_TRUE(request.logprobs);
  EXPECT_EQ(request.sampling.top_logprobs, 2);
  EXPECT_EQ(request.max_tokens, 3);
  refused("best_of", [] { read_completion(R"({"prompt": "x", "best_of": 2})", kLimits); });
}

}  // namespace
}  // namespace tandem
