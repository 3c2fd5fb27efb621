// data.*: which rows are read and how they become prompts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "config/rows_config.h"

namespace tandem {

struct AdaptiveBatchConfig {
  int64_t min_size = 0;
  int64_t step = 0;
  double low_utilization = 0.6, high_utilization = 0.85;
  int64_t patience = 2;

  template <class V>
  void fields(V&& v) {
    v("min_size", min_size,
      "least prompts a step while rollout is slow; 0: always train_batch_size. What is learnt then depends on the "
      "clock");
    v("step", step, "prompts that one change takes off or gives back; 0: a quarter of train_batch_size");
    v("low_utilization", low_utilization,
      "steps below this utilization of rollout (its rate over its best) make the batch smaller");
    v("high_utilization", high_utilization, "steps above this one make it larger again");
    v("patience", patience, "such steps in a row before a change");
  }
};

struct DataConfig : RowsConfig {
  std::string prompt_key = "prompt";
  std::string reward_fn_key = "data_source";
  int64_t train_batch_size = 1024;
  std::optional<int64_t> val_batch_size;
  int64_t max_prompt_length = 512;
  int64_t max_response_length = 512;
  bool filter_overlong_prompts = false;
  std::string truncation = "error";
  int64_t dataloader_num_workers = 8;
  AdaptiveBatchConfig adaptive_batch;

  DataConfig() {
    train_files = {"~/data/rlhf/gsm8k/train.parquet"};
    val_files = {"~/data/rlhf/gsm8k/test.parquet"};
  }

  template <class V>
  void fields(V&& v) {
    RowsConfig::fields(v);
    v("prompt_key", prompt_key, "column holding the prompt: a list of {role, content} messages");
    v("reward_fn_key", reward_fn_key, "column whose value chooses the reward rule");
    v("train_batch_size", train_batch_size, "prompts a step; each is sampled actor_rollout_ref.rollout.n times");
    v("val_batch_size", val_batch_size, "validation prompts generated at once; null: all of them");
    v("max_prompt_length", max_prompt_length, "most tokens of a prompt, chat template included");
    v("max_response_length", max_response_length, "most tokens of a response; longer ones are cut");
    v("filter_overlong_prompts", filter_overlong_prompts, "drop prompts over max_prompt_length and say how many");
    v("truncation", truncation,
      "what to do with an overlong prompt that was not filtered: stop, or keep its last, first, or first and last "
      "tokens",
      {"error", "left", "right", "middle"});
    v("dataloader_num_workers", dataloader_num_workers, "threads that template and tokenise prompts");
    v("adaptive_batch", adaptive_batch, "fewer prompts a step while rollout is slow");
  }
};

}  // namespace tandem
