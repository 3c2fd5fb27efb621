#include "app/memory_sizes.h"

#include <algorithm>
#include <limits>

#include "app/options.h"
#include "app/ranks.h"
#include "dashboard/gpu_meters.h"
#include "kernels/device_ops.h"

namespace tandem {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

ModelShape shape_at(const std::string& path, std::string_view key, bool value_head = false) {
  ModelConfig config = load_model_config(resolve_model(path, key));
  config.value_head = value_head;
  return shape_of(config);
}

// Adapters of this rank on every linear layer of the blocks.
int64_t adapter_parameters(const ModelShape& m, int64_t rank) {
  const int64_t attention = (m.hidden + m.q_size()) * 2 + (m.hidden + m.kv_size()) * 2;
  return m.layers * rank * (attention + 3 * (m.hidden + m.intermediate));
}

std::vector<RoleSizes> roles_of(const Config& config) {
  const ActorRolloutRefConfig& arr = config.actor_rollout_ref;
  const ModelShape policy = shape_at(arr.model.path, "actor_rollout_ref.model.path");
  const int64_t adapters = arr.model.uses_lora() ? adapter_parameters(policy, arr.model.lora_rank) : 0;
  std::vector<RoleSizes> roles{{"actor", policy, adapters, true, true, run_layout(config)}};
  if (needs_critic(config))
    roles.push_back({"critic",
                     shape_at(config.critic.model.path.value_or(arr.model.path), "critic.model.path", true),
                     0,
                     true,
                     false,
                     {}});
  if (needs_reference(config) && !arr.model.uses_lora()) roles.push_back({"reference", policy, 0, false, false, {}});
  if (uses_reward_model(config.reward))
    roles.push_back(
        {"reward",
         shape_at(config.reward.reward_model.model_path.value_or(""), "reward.reward_model.model_path", true),
         0,
         false,
         false,
         {}});
  return roles;
}

WorkloadSizes work_of(const Config& config, bool gpu) {
  const DerivedSizes sizes = derived_sizes(config);
  const RolloutConfig& rollout = config.actor_rollout_ref.rollout;
  const ActorConfig& actor = config.actor_rollout_ref.actor;
  WorkloadSizes work;
  work.prompts = sizes.prompts_per_step, work.samples_per_prompt = rollout.n;
  work.prompt_length = sizes.prompt_length, work.response_length = sizes.response_length;
  work.mini_batch_samples = std::min(sizes.samples_per_mini_batch, sizes.samples_per_step);
  work.micro_batch_tokens = micro_batch_token_limit(config, gpu);
  if (!actor.use_dynamic_bsz)
    work.micro_batch_tokens =
        std::min(work.micro_batch_tokens, actor.ppo_micro_batch_size_per_gpu.value_or(1) * sizes.model_length);
  work.rollout_pass_tokens = rollout.max_num_batched_tokens, work.rollout_seqs = rollout.max_num_seqs;
  work.kv_cache_bytes = rollout.kv_cache_memory_mb << 20;
  work.recompute = config.actor_rollout_ref.model.enable_gradient_checkpointing;
  return work;
}

int64_t or_never(int64_t period) { return period > 0 ? period : kNever; }

// When a copy of the state is first made (app/run_saver.h).
void plan_copies(const TrainerConfig& trainer, WorkloadSizes& work) {
  const TrainerCheckpointConfig& checkpoint = trainer.checkpoint;
  const int64_t last = trainer.total_training_steps.value_or(kNever);
  int64_t first = or_never(checkpoint.memory_freq);
  if (checkpoint.async_save) {
    first = std::min({first, or_never(trainer.save_freq), or_never(checkpoint.local_freq)});
    if (trainer.save_freq > 0) first = std::min(first, last);
  }
  work.copies_state = first != kNever && first <= last;
  work.copies_before_end = first < last;
}

bool saves_moments(const std::vector<std::string>& contents) {
  return std::ranges::find(contents, std::string("optimizer")) != contents.end();
}

}  // namespace

ModelShape shape_of(const ModelConfig& c) {
  ModelShape m;
  m.layers = c.num_hidden_layers, m.hidden = c.hidden_size, m.intermediate = c.intermediate_size;
  m.vocab = c.value_head ? 1 : c.vocab_size;
  m.heads = c.num_attention_heads, m.kv_heads = c.num_key_value_heads, m.head_dim = c.head_dim;
  m.tied_head = c.tie_word_embeddings;
  m.parameters = num_parameters(c);
  return m;
}

MemoryQuestion memory_question(const Config& config) {
  const bool gpu = !kernels::choose_device(config.trainer.device).is_cpu();
  MemoryQuestion out;
  out.roles = roles_of(config);
  out.work = work_of(config, gpu);
  plan_copies(config.trainer, out.work);
  out.device.gpu = gpu;
  out.processes_on_host = num_ranks(config);
  if (gpu) {
    const auto meters = GpuMeters(load_nvml()).read();
    if (!meters.empty()) out.device.bytes = static_cast<int64_t>(meters.front().memory_total_gb * (1 << 30));
    out.device.utilization = config.actor_rollout_ref.rollout.gpu_memory_utilization;
  }
  const bool actor_moments = saves_moments(config.actor_rollout_ref.actor.checkpoint.save_contents);
  for (const RoleSizes& role : out.roles) {
    if (!role.trains) continue;
    const int64_t trained = role.trained_parameters > 0 ? role.trained_parameters : role.model.parameters;
    const bool moments = role.role == "critic" ? saves_moments(config.critic.checkpoint.save_contents) : actor_moments;
    out.checkpoint_bytes += (moments ? 12 : 4) * trained;
  }
  const TrainerConfig& trainer = config.trainer;
  const int64_t every = std::min(or_never(trainer.save_freq), or_never(trainer.checkpoint.local_freq));
  if (trainer.total_training_steps && every != kNever)
    out.saves = *trainer.total_training_steps / every + (*trainer.total_training_steps % every != 0 ? 1 : 0);
  return out;
}

}  // namespace tandem
