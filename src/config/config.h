// The whole configuration: plain structs whose nesting and names are verl's, so `config.actor_rollout_ref.rollout.n`
// is the key actor_rollout_ref.rollout.n. Each struct lists its fields once, with a line of documentation; loading,
// printing, checking and docs/config.md all come from that list. Only keys that have an effect are members; what
// happens to verl's other keys is said in verl_keys.h.
#pragma once

#include <cstdint>
#include <string>

#include "config/actor_config.h"
#include "config/algorithm_config.h"
#include "config/critic_config.h"
#include "config/data_config.h"
#include "config/reward_config.h"
#include "config/rollout_config.h"
#include "config/trainer_config.h"

namespace tandem {

struct ActorRolloutRefConfig {
  PolicyModelConfig model;
  ActorConfig actor;
  RolloutConfig rollout;
  int64_t nccl_timeout = 600;

  template <class V>
  void fields(V&& v) {
    v("nccl_timeout", nccl_timeout,
      "seconds that a rank waits for the others in one exchange, whatever carries it, before it gives the run up");
    v("model", model, "the model");
    v("actor", actor, "the update");
    v("rollout", rollout, "the sampling");
  }
};

struct NumericsConfig {
  std::string mode = "exact";
  int64_t virtual_tp = 1;

  template <class V>
  void fields(V&& v) {
    v("mode", mode,
      "exact: sampled log-probs equal the training pass bit for bit; fast: quickest kernels, mismatch reported each "
      "step; `numerics=fast` is short for this key",
      {"exact", "fast"});
    v("virtual_tp", virtual_tp, "pieces in which sums over the hidden size are made, whatever the number of devices");
  }
};

struct Config {
  DataConfig data;
  ActorRolloutRefConfig actor_rollout_ref;
  CriticConfig critic;
  RewardConfig reward;
  AlgorithmConfig algorithm;
  TrainerConfig trainer;
  NumericsConfig numerics;

  template <class V>
  void fields(V&& v) {
    v("data", data, "the rows");
    v("actor_rollout_ref", actor_rollout_ref, "the model, its update and its sampling");
    v("critic", critic, "the value model of algorithm.adv_estimator=gae");
    v("reward", reward, "the scoring");
    v("algorithm", algorithm, "the advantages");
    v("trainer", trainer, "the run");
    v("numerics", numerics, "how exact the arithmetic is");
  }
};

// The sizes that follow from a configuration.
struct DerivedSizes {
  int64_t prompt_length = 0;    // most tokens of a prompt
  int64_t response_length = 0;  // most tokens of a response
  int64_t model_length = 0;     // most tokens of both together
  int64_t prompts_per_step = 0;
  int64_t samples_per_step = 0;  // prompts_per_step * rollout.n
  int64_t mini_batches = 0;      // a pass; the last one may be smaller
  int64_t samples_per_mini_batch = 0;
  int64_t optimizer_steps_per_step = 0;  // mini_batches * ppo_epochs
  int64_t max_tokens_per_step = 0;       // samples_per_step * model_length
  double clip_low = 0, clip_high = 0;
  double loss_scale = 0;  // divisor of seq-mean-token-sum-norm
};
DerivedSizes derived_sizes(const Config& config);

// Most tokens in a training micro-batch under use_dynamic_bsz.
int64_t micro_batch_token_limit(const Config& config, bool on_gpu);

// Steps of the whole run: total_epochs, cut at total_training_steps. verl drops an epoch's last, incomplete batch, and
// so do we.
int64_t total_steps(const Config& config, int64_t train_rows);

}  // namespace tandem
