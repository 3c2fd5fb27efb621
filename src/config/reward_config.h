// reward.*: how responses are scored.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "config/json_text.h"

namespace tandem {

struct CustomRewardFunctionConfig {
  std::optional<std::string> path;
  std::string name = "compute_score";
  JsonText reward_kwargs;

  template <class V>
  void fields(V&& v) {
    v("path", path, "Python file with the reward function; null: the built-in rules");
    v("name", name, "the function in it: name(data_source, solution_str, ground_truth, extra_info, **reward_kwargs)");
    v("reward_kwargs", reward_kwargs, "further arguments of that function");
  }
};

struct RewardManagerConfig {
  std::string name = "naive";

  template <class V>
  void fields(V&& v) {
    v("name", name, "naive: the score is the reward; dapo: also the penalty of reward_kwargs.overlong_buffer_cfg",
      {"naive", "dapo"});
  }
};

// DAPO's soft limit (Yu et al. 2025, eq. 13): the last `len` tokens before max_resp_len cost up to `penalty_factor`.
struct OverlongBufferConfig {
  bool enable = false;
  int64_t len = 0;
  double penalty_factor = 1.0;

  template <class V>
  void fields(V&& v) {
    v("enable", enable, "subtract a penalty from long responses");
    v("len", len, "tokens below max_resp_len in which the penalty grows from 0 to penalty_factor");
    v("penalty_factor", penalty_factor, "the penalty at max_resp_len");
  }
};

struct RewardKwargsConfig {
  std::optional<int64_t> max_resp_len;
  OverlongBufferConfig overlong_buffer_cfg;

  template <class V>
  void fields(V&& v) {
    v("max_resp_len", max_resp_len, "where the overlong penalty is full, in tokens; null: data.max_response_length");
    v("overlong_buffer_cfg", overlong_buffer_cfg, "penalty for responses near the length limit");
  }
};

// A model that scores: one of ours, or a server that speaks vLLM's HTTP API.
struct RewardModelConfig {
  std::optional<bool> enable;
  std::optional<std::string> type;
  std::optional<std::string> endpoint;
  std::optional<std::string> model_path;
  std::optional<std::string> prompt_template;
  std::optional<std::string> score_regex;
  int64_t max_tokens = 512;
  JsonText request_kwargs;
  std::optional<std::string> api_key_env;
  int64_t max_concurrent = 64;
  int64_t max_retries = 3;
  double timeout = 60.0;

  template <class V>
  void fields(V&& v) {
    v("enable", enable, "score by this model; null: as soon as type is set");
    v("type", type,
      "model: a reward model in this process (tandem reward-model trains one); vllm_api: a server that speaks vLLM's "
      "HTTP "
      "API; null: none",
      {"model", "vllm_api"});
    v("endpoint", endpoint,
      "its URL; the path chooses what is asked: /classify, /pooling, /score (numbers), /generate, /v1/chat/completions "
      "(text)");
    v("model_path", model_path, "model: its folder; vllm_api: the model's name in the requests, null: not sent");
    v("prompt_template", prompt_template,
      "what a sample becomes, with {prompt}, {response}, {ground_truth}, {data_source} filled in; null: the "
      "conversation itself, templated by the server");
    v("score_regex", score_regex,
      "finds the score in a text reply: the first group of its last match (ECMAScript); none found is an error");
    v("max_tokens", max_tokens, "most tokens of a text reply");
    v("request_kwargs", request_kwargs, "further members of each request's JSON object");
    v("api_key_env", api_key_env, "environment variable whose value is sent as the bearer token; null: none");
    v("max_concurrent", max_concurrent, "most requests under way at once");
    v("max_retries", max_retries, "how often a request is repeated that got no reply, or HTTP 408, 425, 429 or 5xx");
    v("timeout", timeout, "seconds one request may take; reward.timeout bounds all of a sample's together");
  }
};

struct RewardConfig {
  std::optional<std::string> rule;
  int64_t num_workers = 8;
  double timeout = 300.0;
  CustomRewardFunctionConfig custom_reward_function;
  RewardModelConfig reward_model;
  RewardManagerConfig reward_manager;
  RewardKwargsConfig reward_kwargs;

  template <class V>
  void fields(V&& v) {
    v("rule", rule, "score every row by this built-in rule; null: by the row's data_source",
      {"gsm8k", "gsm8k_flexible", "math", "math_dapo", "countdown", "exact", "format"});
    v("num_workers", num_workers, "Python processes of a custom_reward_function: most responses it scores at once");
    v("timeout", timeout, "seconds the scoring of one response may take; then the run stops and names the sample");
    v("custom_reward_function", custom_reward_function, "a reward function of your own");
    v("reward_model", reward_model, "a model that scores responses, here or behind HTTP");
    v("reward_manager", reward_manager, "how scores become rewards");
    v("reward_kwargs", reward_kwargs, "settings of the reward manager");
  }
};

inline bool uses_reward_server(const RewardConfig& reward) {
  return reward.reward_model.type == "vllm_api" && reward.reward_model.enable.value_or(true);
}

inline bool uses_reward_model(const RewardConfig& reward) {
  return reward.reward_model.type == "model" && reward.reward_model.enable.value_or(true);
}

}  // namespace tandem
