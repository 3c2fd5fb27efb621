// critic.*: the value model that algorithm.adv_estimator=gae trains beside the policy.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "config/actor_config.h"

namespace tandem {

struct CriticModelConfig {
  std::optional<std::string> path;
  bool enable_gradient_checkpointing = true;

  template <class V>
  void fields(V&& v) {
    v("path", path, "folder it starts from, a policy's or a critic's; null: actor_rollout_ref.model.path");
    v("enable_gradient_checkpointing", enable_gradient_checkpointing,
      "recompute each block in the backward pass: less memory, about a third more compute");
  }
};

inline OptimConfig critic_optim_defaults() {
  OptimConfig optim;
  optim.lr = 1e-5;
  return optim;
}

struct CriticConfig {
  CriticModelConfig model;
  OptimConfig optim = critic_optim_defaults();
  std::optional<int64_t> ppo_mini_batch_size;
  std::optional<int64_t> ppo_epochs;
  bool shuffle = false;
  int64_t data_loader_seed = 42;
  bool use_dynamic_bsz = true;
  std::optional<int64_t> ppo_max_token_len_per_gpu;
  std::optional<int64_t> ppo_micro_batch_size_per_gpu;
  double cliprange_value = 0.5;
  std::optional<std::string> loss_agg_mode;
  CheckpointConfig checkpoint;

  template <class V>
  void fields(V&& v) {
    v("model", model, "the critic's model");
    v("optim", optim, "the critic's optimizer (AdamW with float32 masters)");
    v("ppo_mini_batch_size", ppo_mini_batch_size, "prompts an optimizer step; null: the actor's");
    v("ppo_epochs", ppo_epochs, "passes over a step's samples; null: the actor's");
    v("shuffle", shuffle, "draw new mini-batches in each pass");
    v("data_loader_seed", data_loader_seed, "seed of that draw");
    v("use_dynamic_bsz", use_dynamic_bsz,
      "fill micro-batches up to ppo_max_token_len_per_gpu tokens; false: ppo_micro_batch_size_per_gpu samples each");
    v("ppo_max_token_len_per_gpu", ppo_max_token_len_per_gpu, "most tokens in a micro-batch; null: the actor's");
    v("ppo_micro_batch_size_per_gpu", ppo_micro_batch_size_per_gpu,
      "samples in a micro-batch; setting it turns use_dynamic_bsz off unless that is set too");
    v("cliprange_value", cliprange_value, "a new value is kept within this of the old one where that raises the loss");
    v("loss_agg_mode", loss_agg_mode, "how token losses become one number; null: the actor's",
      {"token-mean", "token-sum", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"});
    v("checkpoint", checkpoint, "contents of checkpoints");
  }
};

}  // namespace tandem
