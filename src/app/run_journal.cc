#include "app/run_journal.h"

#include "base/fnv.h"
#include "config/describe.h"

namespace tandem {
namespace {

bool depends_on_length(const OptimConfig& optim) {
  return optim.lr_scheduler_type != "constant" || (optim.lr_warmup_steps < 0 && optim.lr_warmup_steps_ratio > 0);
}

}  // namespace

uint64_t journal_fingerprint(const Config& config, int64_t train_rows) {
  Config kept = config;
  kept.trainer = TrainerConfig();
  kept.trainer.seed = config.trainer.seed;
  kept.trainer.critic_warmup = config.trainer.critic_warmup;
  kept.trainer.nonfinite_update = config.trainer.nonfinite_update;
  if (depends_on_length(config.actor_rollout_ref.actor.optim) || depends_on_length(config.critic.optim))
    kept.trainer.total_training_steps = total_steps(config, train_rows);
  kept.reward = RewardConfig();
  kept.reward.reward_manager = config.reward.reward_manager;  // what it adds to a score is made anew
  kept.reward.reward_kwargs = config.reward.reward_kwargs;
  kept.data.val_files.clear();
  RolloutConfig& rollout = kept.actor_rollout_ref.rollout;
  const RolloutConfig usual;
  rollout.max_num_seqs = usual.max_num_seqs;
  rollout.max_num_batched_tokens = usual.max_num_batched_tokens;
  rollout.enable_chunked_prefill = usual.enable_chunked_prefill;
  rollout.enable_prefix_caching = usual.enable_prefix_caching;
  rollout.gpu_memory_utilization = usual.gpu_memory_utilization;
  rollout.kv_cache_memory_mb = usual.kv_cache_memory_mb;
  rollout.val_kwargs = usual.val_kwargs;
  return fnv1a(fnv1a(kFnvStart, resolved_yaml(kept)), static_cast<uint64_t>(train_rows));
}

std::optional<JournalOptions> journal_options(const Config& config, int64_t train_rows,
                                              const std::filesystem::path& run_folder) {
  const JournalConfig& journal = config.trainer.journal;
  if (!journal.enable || config.trainer.val_only) return std::nullopt;
  return JournalOptions{run_folder / "journal", parse_journal_sync(journal.fsync),
                        journal_fingerprint(config, train_rows)};
}

DrawnSamples drawn_samples(std::optional<Journal>& journal) {
  return {[&journal](bool greedy, const PromptPtr& prompt, uint32_t sample_index, uint64_t policy_version) {
            return journal ? journal->recall(greedy, prompt, sample_index, policy_version) : nullptr;
          },
          [&journal](bool greedy, const TrajectoryPtr& trajectory) {
            if (journal) journal->record(greedy, trajectory);
          }};
}

GivenRewards given_rewards(std::optional<Journal>& journal) {
  return {[&journal](const Trajectory& trajectory) -> std::optional<RewardResult> {
            auto known = journal ? journal->recall_reward(trajectory) : std::nullopt;
            if (!known) return std::nullopt;
            return RewardResult{known->score, std::move(known->extra)};
          },
          [&journal](const Trajectory& trajectory, const RewardResult& result) {
            if (journal) journal->record_reward(trajectory, {result.score, result.extra});
          }};
}

}  // namespace tandem
