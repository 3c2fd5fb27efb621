#include "config/validate_ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tandem {

void check_ranks(ConfigChecker<Config>& check, const Config& config) {
  const int64_t ranks = config.trainer.n_gpus_per_node;
  const ActorConfig& actor = config.actor_rollout_ref.actor;
  check.between(config.actor_rollout_ref.nccl_timeout, 1, 1'000'000, "actor_rollout_ref.nccl_timeout");
  const std::string at = "actor_rollout_ref.actor.";
  const bool megatron = ranks > 1 && actor.strategy == "megatron";
  check.require(ranks == 1 || megatron || actor.strategy == "fsdp" || actor.strategy == "fsdp2", at + "strategy",
                "several ranks work with fsdp or megatron: use one of them, or trainer.n_gpus_per_node=1");
  const int64_t tp = actor.megatron.tensor_model_parallel_size, pp = actor.megatron.pipeline_model_parallel_size;
  const int64_t cp = std::max(actor.megatron.context_parallel_size, actor.ulysses_sequence_parallel_size);
  const auto fits = [&](int64_t size, int64_t among, bool its_strategy, const std::string& key,
                        std::string_view strategy) {
    check.require(size >= 1 && among % size == 0 && (size == 1 || its_strategy), at + key,
                  fmt::format("must divide {} ranks, and goes with trainer.n_gpus_per_node of 2 or more and "
                              "actor.strategy={}",
                              among, strategy));
  };
  fits(tp, ranks, megatron, "megatron.tensor_model_parallel_size", "megatron");
  if (check.problem()) return;
  fits(pp, ranks / tp, megatron, "megatron.pipeline_model_parallel_size", "megatron");
  if (check.problem()) return;
  const int64_t chunks = actor.megatron.virtual_pipeline_model_parallel_size.value_or(1);
  check.require(chunks == 1 || (chunks > 1 && pp > 1), at + "megatron.virtual_pipeline_model_parallel_size",
                "must be 1 or more, and more than 1 only with pipeline_model_parallel_size of 2 or more");
  const int64_t data = ranks / (tp * pp);
  fits(actor.megatron.context_parallel_size, data, megatron, "megatron.context_parallel_size", "megatron");
  fits(actor.ulysses_sequence_parallel_size, data, ranks > 1 && !megatron, "ulysses_sequence_parallel_size", "fsdp");
  check.require(
      config.actor_rollout_ref.rollout.tensor_model_parallel_size == tp,
      "actor_rollout_ref.rollout.tensor_model_parallel_size",
      fmt::format("must be {}: training and rollout share their weights, so it is that of actor.megatron with "
                  "actor.strategy=megatron, else 1",
                  tp));
  const AlgorithmConfig& algorithm = config.algorithm;
  check.require(tp == 1 || (!algorithm.rollout_correction.rollout_is && !algorithm.rollout_correction.rollout_rs),
                "algorithm.rollout_correction.rollout_is", "not with tensor parallelism so far: leave it out");
  check.require(tp == 1 || algorithm.adv_estimator != "optimal_token_baseline", "algorithm.adv_estimator",
                "not with tensor parallelism so far: use another estimator");
  const int64_t shard = actor.fsdp_config.fsdp_size;
  check.require(shard == -1 || shard >= 1, at + "fsdp_config.fsdp_size", "must be 1 or more, or -1 for all ranks");
  check.require(shard < 1 || ranks == 1 || data % shard == 0, at + "fsdp_config.fsdp_size",
                fmt::format("must divide the {} data-parallel ranks, or be -1 for all", data));
  check.require(shard < 1 || ranks == 1 || cp < 1 || shard % cp == 0, at + "fsdp_config.fsdp_size",
                fmt::format("must be a multiple of the {} ranks that share a sequence, or -1 for all", cp));
  const std::string& loss = actor.policy_loss.loss_mode;
  check.require(
      pp == 1 || (loss != "clip_cov" && loss != "kl_cov"), at + "policy_loss.loss_mode",
      "clip_cov and kl_cov need a whole mini-batch's log-probs first, which no rank of a pipeline can compute "
      "alone: share the work by actor.strategy=fsdp or by tensor parallelism");
  check.require(ranks == 1 || !config.actor_rollout_ref.model.uses_lora(), "actor_rollout_ref.model.lora_rank",
                "adapters train on one rank so far: use trainer.n_gpus_per_node=1");
}

void check_elasticity(ConfigChecker<Config>& check, const Config& config) {
  const TrainerConfig& trainer = config.trainer;
  const FaultConfig& fault = trainer.fault;
  check.at_least(fault.replace_timeout, 0, "trainer.fault.replace_timeout");
  check.between(fault.min_ranks, 0, trainer.n_gpus_per_node, "trainer.fault.min_ranks");
  check.require(std::isfinite(fault.grow_interval) && fault.grow_interval > 0, "trainer.fault.grow_interval",
                "must be above 0");
  check.require(config.data.adaptive_batch.min_size == 0 || trainer.journal.enable, "data.adaptive_batch.min_size",
                "needs trainer.journal.enable=true, which keeps each step's size for when it is made again");
}

void check_pools(ConfigChecker<Config>& check, const Config& config) {
  const ResourcePoolsConfig& pools = config.trainer.resource_pools;
  check.require(pools.critic == "actor" || config.algorithm.adv_estimator == "gae", "trainer.resource_pools.critic",
                "only algorithm.adv_estimator=gae has a critic: leave it out");
  const bool reference = config.actor_rollout_ref.actor.use_kl_loss || config.algorithm.use_kl_in_reward;
  check.require(pools.reference == "actor" || (reference && !config.actor_rollout_ref.model.uses_lora()),
                "trainer.resource_pools.reference",
                "there is no reference model of its own (actor.use_kl_loss or algorithm.use_kl_in_reward ask for one; "
                "of a policy with adapters it is the policy): leave it out");
  check.require(config.trainer.runtime != "threads" || (pools.critic == "actor" && pools.reference == "actor"),
                "trainer.resource_pools", "roles have processes of their own or are threads, not both");
}

}  // namespace tandem
