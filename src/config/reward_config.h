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

struct RewardConfig {
  std::optional<std::string> rule;
  int64_t num_workers = 8;
  double timeout = 300.0;
  CustomRewardFunctionConfig custom_reward_function;
  RewardManagerConfig reward_manager;
  RewardKwargsConfig reward_kwargs;

  template <class V>
  void fields(V&& v) {
    v("rule", rule, "score every row by this built-in rule; null: by the row's data_source",
      {"gsm8k", "gsm8k_flexible", "math", "math_dapo", "countdown", "exact"});
    v("num_workers", num_workers, "most responses scored at once");
    v("timeout", timeout, "seconds the scoring of one response may take; then the run stops and names the sample");
    v("custom_reward_function", custom_reward_function, "a reward function of your own");
    v("reward_manager", reward_manager, "how scores become rewards");
    v("reward_kwargs", reward_kwargs, "settings of the reward manager");
  }
};

}  // namespace tandem
