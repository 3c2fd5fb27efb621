#include "config/config.h"

#include <algorithm>

namespace tandem {

DerivedSizes derived_sizes(const Config& config) {
  const DataConfig& data = config.data;
  const ActorConfig& actor = config.actor_rollout_ref.actor;
  const RolloutConfig& rollout = config.actor_rollout_ref.rollout;
  DerivedSizes out;
  out.prompt_length = rollout.prompt_length.value_or(data.max_prompt_length);
  out.response_length = rollout.response_length.value_or(data.max_response_length);
  out.model_length = rollout.max_model_len.value_or(out.prompt_length + out.response_length);
  out.prompts_per_step = data.train_batch_size;
  out.samples_per_step = data.train_batch_size * rollout.n;
  out.mini_batches = (data.train_batch_size + actor.ppo_mini_batch_size - 1) / actor.ppo_mini_batch_size;
  out.samples_per_mini_batch = actor.ppo_mini_batch_size * rollout.n;
  out.optimizer_steps_per_step = out.mini_batches * actor.ppo_epochs;
  out.max_tokens_per_step = out.samples_per_step * out.model_length;
  out.clip_low = actor.clip_ratio_low.value_or(actor.clip_ratio);
  out.clip_high = actor.clip_ratio_high.value_or(actor.clip_ratio);
  out.loss_scale = actor.loss_scale_factor.value_or(static_cast<double>(out.response_length));
  return out;
}

int64_t micro_batch_token_limit(const Config& config, bool on_gpu) {
  const int64_t limit = config.actor_rollout_ref.actor.ppo_max_token_len_per_gpu.value_or(on_gpu ? 16384 : 4096);
  return std::max(limit, derived_sizes(config).model_length);
}

int64_t total_steps(const Config& config, int64_t train_rows) {
  const TrainerConfig& trainer = config.trainer;
  const int64_t by_epochs = train_rows / config.data.train_batch_size * trainer.total_epochs;
  return std::min(by_epochs, trainer.total_training_steps.value_or(by_epochs));
}

}  // namespace tandem
