// The configuration of `tandem sft` and `tandem reward-model`: the keys of verl's sft_trainer, and what pairs need.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/actor_config.h"
#include "config/rows_config.h"
#include "config/run_config.h"

namespace tandem {

struct TuningDataConfig : RowsConfig {
  std::string messages_key = "messages";
  std::string prompt_key = "prompt";
  std::string response_key = "response";
  std::string chosen_key = "chosen";
  std::string rejected_key = "rejected";
  int64_t train_batch_size = 256;
  int64_t max_length = 1024;
  std::string truncation = "error";
  bool use_dynamic_bsz = true;
  int64_t max_token_len_per_gpu = 8192;
  std::optional<int64_t> micro_batch_size_per_gpu;
  int64_t num_workers = 8;

  template <class V>
  void fields(V&& v) {
    RowsConfig::fields(v);
    v("messages_key", messages_key, "sft: column of whole conversations; a row without it has prompt and response");
    v("prompt_key", prompt_key, "column of the prompt: messages, or the text of one user message");
    v("response_key", response_key, "sft: column of the reply to it, where there are no whole conversations");
    v("chosen_key", chosen_key, "reward-model: column of the better reply");
    v("rejected_key", rejected_key, "reward-model: column of the worse reply");
    v("train_batch_size", train_batch_size, "rows an optimizer step");
    v("max_length", max_length, "most tokens of a conversation, chat template included");
    v("truncation", truncation, "what to do with a longer one: stop, or keep its last or first tokens",
      {"error", "left", "right"});
    v("use_dynamic_bsz", use_dynamic_bsz,
      "fill micro-batches up to max_token_len_per_gpu tokens; false: micro_batch_size_per_gpu rows each");
    v("max_token_len_per_gpu", max_token_len_per_gpu, "most tokens in a micro-batch, at least one row");
    v("micro_batch_size_per_gpu", micro_batch_size_per_gpu, "rows in a micro-batch where use_dynamic_bsz=false");
    v("num_workers", num_workers, "threads that template and tokenise rows");
  }
};

inline OptimConfig tuning_optim_defaults() {
  OptimConfig optim;
  optim.lr = 1e-5;
  return optim;
}

struct TuningTrainerConfig : RunConfig {
  std::optional<int64_t> max_ckpt_to_keep;

  TuningTrainerConfig() {
    total_epochs = 4, seed = 1;
    project_name = "gsm8k-sft", experiment_name = "test";
  }

  template <class V>
  void fields(V&& v) {
    RunConfig::fields(v);
    v("save_freq", save_freq, "steps between checkpoints, the last step included; -1: none but after the last step");
    v("max_ckpt_to_keep", max_ckpt_to_keep, "newest checkpoints kept; null: all");
    v("test_freq", test_freq, "steps between validations, the last step included; -1: after the last step only");
  }
};

struct TuningCheckpointConfig : CheckpointConfig {
  bool async_save = true;
  double max_write_mb_per_s = 0;

  template <class V>
  void fields(V&& v) {
    CheckpointConfig::fields(v);
    v("async_save", async_save,
      "copy the state and go on; another thread writes the checkpoint. false, or too little memory: the step waits");
    v("max_write_mb_per_s", max_write_mb_per_s, "most that writing checkpoints may take of the disk; 0: no bound");
  }
};

struct TuningConfig {
  TuningDataConfig data;
  PolicyModelConfig model;
  OptimConfig optim = tuning_optim_defaults();
  TuningTrainerConfig trainer;
  TuningCheckpointConfig checkpoint;

  template <class V>
  void fields(V&& v) {
    v("data", data, "the rows");
    v("model", model, "the model it starts from");
    v("optim", optim, "the optimizer (AdamW with float32 masters)");
    v("trainer", trainer, "the run");
    v("checkpoint", checkpoint, "contents and writing of checkpoints");
  }
};

// Steps of the whole run: total_epochs, cut at total_training_steps. An epoch's last, incomplete batch is dropped.
inline int64_t total_steps(const TuningConfig& config, int64_t train_rows) {
  const int64_t by_epochs = train_rows / config.data.train_batch_size * config.trainer.total_epochs;
  const int64_t limit = config.trainer.total_training_steps.value_or(by_epochs);
  return limit < by_epochs ? limit : by_epochs;
}

}  // namespace tandem
