#include "config/validate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "config/checker.h"
#include "config/load.h"
#include "config/validate_ranks.h"

namespace tandem {
namespace {

using Checker = ConfigChecker<Config>;

void check_adaptive_batch(Checker& check, const DataConfig& data) {
  const AdaptiveBatchConfig& batch = data.adaptive_batch;
  check.between(batch.min_size, 0, data.train_batch_size, "data.adaptive_batch.min_size");
  check.between(batch.step, 0, data.train_batch_size, "data.adaptive_batch.step");
  check.require(
      batch.low_utilization > 0 && batch.low_utilization < batch.high_utilization && batch.high_utilization <= 1,
      "data.adaptive_batch.low_utilization", "must lie between 0 and high_utilization, which is 1 at most");
  check.between(batch.patience, 1, kMaxCount, "data.adaptive_batch.patience");
}

void check_data(Checker& check, const DataConfig& data) {
  const auto paths = [&](const std::vector<std::string>& files, const std::string& key) {
    check.require(std::ranges::none_of(files, &std::string::empty), key, "holds an empty path");
  };
  check.require(!data.train_files.empty(), "data.train_files", "is empty: name at least one .parquet or .jsonl file");
  paths(data.train_files, "data.train_files");
  paths(data.val_files, "data.val_files");
  check.named(data.prompt_key, "data.prompt_key");
  check.named(data.reward_fn_key, "data.reward_fn_key");
  check.between(data.train_batch_size, 1, kMaxBatch, "data.train_batch_size");
  check_adaptive_batch(check, data);
  check.between(data.val_batch_size, 1, kMaxBatch, "data.val_batch_size");
  check.between(data.max_prompt_length, 1, kMaxLength, "data.max_prompt_length");
  check.between(data.max_response_length, 1, kMaxLength, "data.max_response_length");
  check.limit_or_none(data.train_max_samples, "data.train_max_samples");
  check.limit_or_none(data.val_max_samples, "data.val_max_samples");
  check.between(data.dataloader_num_workers, 0, 1024, "data.dataloader_num_workers");
}

void check_policy_loss(Checker& check, const ActorConfig& actor) {
  const PolicyLossConfig& loss = actor.policy_loss;
  const std::string at = "actor_rollout_ref.actor.policy_loss.";
  check.share(loss.clip_cov_ratio, at + "clip_cov_ratio");
  check.share(loss.kl_cov_ratio, at + "kl_cov_ratio");
  check.require(
      std::isfinite(loss.clip_cov_lb) && std::isfinite(loss.clip_cov_ub) && loss.clip_cov_lb < loss.clip_cov_ub,
      at + "clip_cov_lb", fmt::format("must be less than {}clip_cov_ub={}", at, loss.clip_cov_ub));
  check.at_least(loss.ppo_kl_coef, 0, at + "ppo_kl_coef");
  check.require(loss.loss_mode != "dro" || loss.dro_beta, at + "dro_beta",
                "policy_loss.loss_mode=dro needs it: set the weight of the squared log-ratio");
  check.at_least(loss.dro_beta.value_or(0), 0, at + "dro_beta");
  for (const auto& [tau, key] : {std::pair{actor.tau_pos, "tau_pos"}, std::pair{actor.tau_neg, "tau_neg"}})
    check.require(std::isfinite(tau) && tau > 0, std::string("actor_rollout_ref.actor.") + key, "must be above 0");
  check.require(
      !averages_in_response(loss.loss_mode) || actor.loss_agg_mode == "seq-mean-token-mean",
      "actor_rollout_ref.actor.loss_agg_mode",
      fmt::format("policy_loss.loss_mode={} is defined with seq-mean-token-mean: leave it out", loss.loss_mode));
}

void check_actor(Checker& check, const Config& config) {
  const ActorConfig& actor = config.actor_rollout_ref.actor;
  const std::string at = "actor_rollout_ref.actor.";
  check.between(actor.ppo_mini_batch_size, 1, kMaxBatch, at + "ppo_mini_batch_size");
  check.require(actor.ppo_mini_batch_size <= config.data.train_batch_size, at + "ppo_mini_batch_size",
                fmt::format("is more than data.train_batch_size={}; both count prompts: use {} or less",
                            config.data.train_batch_size, config.data.train_batch_size));
  check.between(actor.ppo_epochs, 1, 1000, at + "ppo_epochs");
  check.between(actor.ppo_max_token_len_per_gpu, 1, kMaxCount, at + "ppo_max_token_len_per_gpu");
  check.between(actor.ppo_micro_batch_size_per_gpu, 1, kMaxBatch, at + "ppo_micro_batch_size_per_gpu");
  check.require(actor.use_dynamic_bsz || actor.ppo_micro_batch_size_per_gpu, at + "use_dynamic_bsz",
                "then " + at + "ppo_micro_batch_size_per_gpu must be set");
  const auto ratio = [&](double value, const std::string& key) {
    check.require(std::isfinite(value) && value >= 0, key, "must be a finite number, 0 or more");
  };
  ratio(actor.clip_ratio, at + "clip_ratio");
  ratio(actor.clip_ratio_low.value_or(0), at + "clip_ratio_low");
  ratio(actor.clip_ratio_high.value_or(0), at + "clip_ratio_high");
  check.require(derived_sizes(config).clip_low <= 1, actor.clip_ratio_low ? at + "clip_ratio_low" : at + "clip_ratio",
                "the lower bound 1 - clip_ratio would be negative: use 1 or less");
  check.require(std::isfinite(actor.clip_ratio_c) && actor.clip_ratio_c > 1, at + "clip_ratio_c", "must be above 1");
  check.require(!actor.loss_scale_factor || (std::isfinite(*actor.loss_scale_factor) && *actor.loss_scale_factor > 0),
                at + "loss_scale_factor", "must be above 0");
  check.require(std::isfinite(actor.entropy_coeff), at + "entropy_coeff", "must be a finite number");
  check.at_least(actor.kl_loss_coef, 0, at + "kl_loss_coef");
  check_policy_loss(check, actor);
  check_lora(check, config.actor_rollout_ref.model, "actor_rollout_ref.model.");
  check_optim(check, actor.optim, at + "optim.");
}

void check_critic(Checker& check, const Config& config) {
  const CriticConfig& critic = config.critic;
  check.path_if_set(critic.model.path, "critic.model.path");
  check.between(critic.ppo_mini_batch_size, 1, kMaxBatch, "critic.ppo_mini_batch_size");
  check.require(critic.ppo_mini_batch_size.value_or(0) <= config.data.train_batch_size, "critic.ppo_mini_batch_size",
                fmt::format("is more than data.train_batch_size={}; both count prompts: use {} or less",
                            config.data.train_batch_size, config.data.train_batch_size));
  check.between(critic.ppo_epochs, 1, 1000, "critic.ppo_epochs");
  check.between(critic.ppo_max_token_len_per_gpu, 1, kMaxCount, "critic.ppo_max_token_len_per_gpu");
  check.between(critic.ppo_micro_batch_size_per_gpu, 1, kMaxBatch, "critic.ppo_micro_batch_size_per_gpu");
  check.require(critic.use_dynamic_bsz || critic.ppo_micro_batch_size_per_gpu, "critic.use_dynamic_bsz",
                "then critic.ppo_micro_batch_size_per_gpu must be set");
  check.require(std::isfinite(critic.cliprange_value) && critic.cliprange_value > 0, "critic.cliprange_value",
                "must be above 0; a large number clips nothing");
  check_optim(check, critic.optim, "critic.optim.");
}

// What training and validation sampling have in common.
template <class Sampling>
void check_sampling(Checker& check, const Sampling& sampling, const std::string& at) {
  check.between(sampling.n, 1, kMaxSamples, at + "n");
  check.require(std::isfinite(sampling.temperature) && sampling.temperature >= 0, at + "temperature",
                "must be a finite number, 0 or more; 0 takes the likeliest token, 1 samples the model as it is");
  check.require(sampling.top_p > 0 && sampling.top_p <= 1, at + "top_p", "must be above 0 and at most 1; 1 keeps all");
  check.require(sampling.top_k == -1 || (sampling.top_k >= 1 && sampling.top_k <= kMaxCount), at + "top_k",
                "must be 1 or more, or -1 to keep all");
}

void check_rollout(Checker& check, const Config& config) {
  const RolloutConfig& rollout = config.actor_rollout_ref.rollout;
  const std::string at = "actor_rollout_ref.rollout.";
  check_sampling(check, rollout, at);
  check_sampling(check, rollout.val_kwargs, at + "val_kwargs.");
  check.require(rollout.min_p >= 0 && rollout.min_p <= 1, at + "min_p", "must be between 0 and 1; 0 drops nothing");
  check.require(std::ranges::none_of(rollout.stop, &std::string::empty), at + "stop",
                "an empty stop text would end every response at once: leave it out");
  check.require(std::ranges::all_of(rollout.stop_token_ids, [](int64_t id) { return id >= 0 && id <= INT32_MAX; }),
                at + "stop_token_ids", "token ids are 0 or more");
  check.between(rollout.prompt_length, 1, kMaxLength, at + "prompt_length");
  check.between(rollout.response_length, 1, kMaxLength, at + "response_length");
  const DerivedSizes sizes = derived_sizes(config);
  check.require(sizes.prompt_length >= config.data.max_prompt_length, at + "prompt_length",
                fmt::format("is less than data.max_prompt_length={}: leave it out", config.data.max_prompt_length));
  check.between(rollout.min_tokens, 0, kMaxLength, at + "min_tokens");
  check.require(rollout.min_tokens <= sizes.response_length, at + "min_tokens",
                fmt::format("is more than a response may have, {} tokens", sizes.response_length));
  check.between(rollout.max_model_len, 1, 2 * kMaxLength, at + "max_model_len");
  check.require(sizes.model_length >= sizes.prompt_length + sizes.response_length, at + "max_model_len",
                fmt::format("is less than prompt and response may need, {} + {} tokens", sizes.prompt_length,
                            sizes.response_length));
  check.between(rollout.max_num_seqs, 1, kMaxCount, at + "max_num_seqs");
  check.between(rollout.max_num_batched_tokens, 1, kMaxCount, at + "max_num_batched_tokens");
  check.require(rollout.enable_chunked_prefill || rollout.max_num_batched_tokens >= sizes.model_length,
                at + "max_num_batched_tokens",
                fmt::format("without chunked prefill a whole sequence must fit: use {} or more, or {}",
                            sizes.model_length, at + "enable_chunked_prefill=true"));
  check.require(rollout.block_size >= 1 && rollout.block_size <= 4096, at + "block_size", "must be between 1 and 4096");
  check.require(rollout.gpu_memory_utilization > 0 && rollout.gpu_memory_utilization <= 1,
                at + "gpu_memory_utilization", "must be above 0 and at most 1");
  check.between(rollout.kv_cache_memory_mb, 1, kMaxCount, at + "kv_cache_memory_mb");
  check.between(rollout.tensor_model_parallel_size, 1, 1024, at + "tensor_model_parallel_size");
}

void check_reward_model(Checker& check, const RewardConfig& reward) {
  const RewardModelConfig& model = reward.reward_model;
  const std::string at = "reward.reward_model.";
  check.require(!model.enable.value_or(false) || model.type, at + "enable",
                "set " + at + "type=model and " + at + "model_path, or " + at + "type=vllm_api and " + at + "endpoint");
  check.between(model.max_tokens, 1, kMaxLength, at + "max_tokens");
  check.between(model.max_concurrent, 1, 4096, at + "max_concurrent");
  check.between(model.max_retries, 0, 100, at + "max_retries");
  check.require(std::isfinite(model.timeout) && model.timeout > 0, at + "timeout", "must be above 0 seconds");
  if (!uses_reward_server(reward) && !uses_reward_model(reward)) return;
  check.require(uses_reward_model(reward) || (model.endpoint && !model.endpoint->empty()), at + "endpoint",
                "is not set: give the server's URL, e.g. http://localhost:8000/classify");
  check.require(uses_reward_server(reward) || (model.model_path && !model.model_path->empty()), at + "model_path",
                "is not set: name the folder of a model that tandem reward-model trained");
  check.require(!reward.custom_reward_function.path && !reward.rule, at + "type",
                "reward.rule or a custom_reward_function is set too: keep one of them");
}

void check_reward(Checker& check, const Config& config) {
  const RewardConfig& reward = config.reward;
  check.between(reward.num_workers, 1, 10'000, "reward.num_workers");
  check.require(std::isfinite(reward.timeout) && reward.timeout > 0, "reward.timeout", "must be above 0 seconds");
  check.path_if_set(reward.custom_reward_function.path, "reward.custom_reward_function.path");
  check.named(reward.custom_reward_function.name, "reward.custom_reward_function.name");
  check.require(!reward.rule || !reward.custom_reward_function.path, "reward.rule",
                "a custom_reward_function is set too: keep one of them");
  check_reward_model(check, reward);
  const OverlongBufferConfig& buffer = reward.reward_kwargs.overlong_buffer_cfg;
  const std::string at = "reward.reward_kwargs.";
  check.between(reward.reward_kwargs.max_resp_len, 1, kMaxLength, at + "max_resp_len");
  if (!buffer.enable) return;
  const int64_t limit = reward.reward_kwargs.max_resp_len.value_or(config.data.max_response_length);
  check.require(reward.reward_manager.name == "dapo", at + "overlong_buffer_cfg.enable",
                "only reward.reward_manager.name=dapo applies it: set that too");
  check.require(buffer.len >= 1 && buffer.len < limit, at + "overlong_buffer_cfg.len",
                fmt::format("must be 1 or more and less than the longest response, {} tokens", limit));
  check.at_least(buffer.penalty_factor, 0, at + "overlong_buffer_cfg.penalty_factor");
}

void check_filter_groups(Checker& check, const Config& config) {
  const FilterGroupsConfig& filter = config.algorithm.filter_groups;
  const std::string at = "algorithm.filter_groups.";
  check.path_if_set(filter.metric, at + "metric");
  check.between(filter.max_num_gen_batches, 0, kMaxCount, at + "max_num_gen_batches");
  if (!filter.enable) return;
  check.require(config.actor_rollout_ref.rollout.n >= 2, at + "enable",
                "a group of one has nothing to differ from: set actor_rollout_ref.rollout.n=8, say");
  check.require(filter.metric != "seq_final_reward" || !config.algorithm.use_kl_in_reward, at + "metric",
                "groups are filtered before KL is taken off the reward: use seq_reward");
}

void check_correction(Checker& check, const RolloutCorrectionConfig& correction) {
  const std::string at = "algorithm.rollout_correction.";
  check.require(!correction.bypass_mode || (!correction.rollout_is && !correction.rollout_rs), at + "bypass_mode",
                "then the ratio is already that to the sampling: leave rollout_is and rollout_rs out");
  check.require(!correction.rollout_rs || correction.rollout_rs_threshold, at + "rollout_rs_threshold",
                "rollout_rs needs it: set the limit, e.g. 2.0");
}

void check_algorithm(Checker& check, const Config& config) {
  const AlgorithmConfig& algorithm = config.algorithm;
  const std::string& estimator = algorithm.adv_estimator;
  check.share(algorithm.gamma, "algorithm.gamma");
  check.share(algorithm.lam, "algorithm.lam");
  check.require(algorithm.gamma == 1 || estimator == "gae" || estimator == "reinforce_plus_plus", "algorithm.gamma",
                fmt::format("algorithm.adv_estimator={} does not discount rewards: leave it at 1", estimator));
  check.require(algorithm.lam == 1 || estimator == "gae", "algorithm.lam",
                fmt::format("only algorithm.adv_estimator=gae has a lambda, not {}: leave it at 1", estimator));
  check.at_least(algorithm.kl_ctrl.kl_coef, 0, "algorithm.kl_ctrl.kl_coef");
  check.require(std::isfinite(algorithm.kl_ctrl.target_kl) && algorithm.kl_ctrl.target_kl > 0,
                "algorithm.kl_ctrl.target_kl", "must be above 0");
  check.between(algorithm.kl_ctrl.horizon, 1, kMaxCount, "algorithm.kl_ctrl.horizon");
  check.require(estimator != "grpo_passk" || config.actor_rollout_ref.rollout.n >= 2, "actor_rollout_ref.rollout.n",
                "algorithm.adv_estimator=grpo_passk compares samples: use 2 or more");
  check.require(estimator != "gdpo" || !algorithm.gdpo_reward_keys.empty(), "algorithm.gdpo_reward_keys",
                "algorithm.adv_estimator=gdpo needs them: name numbers that the reward function returns");
  check.require(algorithm.gdpo_reward_weights.empty() ||
                    algorithm.gdpo_reward_weights.size() == algorithm.gdpo_reward_keys.size(),
                "algorithm.gdpo_reward_weights", "must have one number for each of algorithm.gdpo_reward_keys");
  check.require(estimator != "gdpo" || !algorithm.use_kl_in_reward, "algorithm.use_kl_in_reward",
                "algorithm.adv_estimator=gdpo looks at the reward keys only: use actor.use_kl_loss instead");
  check_filter_groups(check, config);
  check_correction(check, algorithm.rollout_correction);
}

void check_trainer(Checker& check, const Config& config) {
  const TrainerConfig& trainer = config.trainer;
  check.between(trainer.total_epochs, 1, 1'000'000, "trainer.total_epochs");
  check.between(trainer.total_training_steps, 1, kMaxCount, "trainer.total_training_steps");
  check.named(trainer.project_name, "trainer.project_name");
  check.named(trainer.experiment_name, "trainer.experiment_name");
  check.named(trainer.default_local_dir, "trainer.default_local_dir");
  const auto frequency = [&](int64_t value, const std::string& key) {
    check.require(value >= -1 && value <= kMaxCount, key, "must be a number of steps, or -1 for never");
  };
  frequency(trainer.save_freq, "trainer.save_freq");
  frequency(trainer.test_freq, "trainer.test_freq");
  check.between(trainer.critic_warmup, 0, kMaxCount, "trainer.critic_warmup");
  check.require(trainer.critic_warmup == 0 || config.algorithm.adv_estimator == "gae", "trainer.critic_warmup",
                "only algorithm.adv_estimator=gae has a critic to warm up");
  check.between(trainer.max_actor_ckpt_to_keep, 1, kMaxCount, "trainer.max_actor_ckpt_to_keep");
  check.require(trainer.resume_mode != "resume_path" || trainer.resume_from_path, "trainer.resume_from_path",
                "trainer.resume_mode=resume_path needs it: name a folder global_step_N");
  for (const auto& [value, key] : {std::pair{&trainer.resume_from_path, "trainer.resume_from_path"},
                                   std::pair{&trainer.rollout_data_dir, "trainer.rollout_data_dir"},
                                   std::pair{&trainer.validation_data_dir, "trainer.validation_data_dir"}})
    check.path_if_set(*value, key);
  check.require(!trainer.val_only || !config.data.val_files.empty(), "data.val_files",
                "trainer.val_only=true needs validation rows: name a file");
  check.require(std::isfinite(trainer.journal.max_gb) && trainer.journal.max_gb > 0, "trainer.journal.max_gb",
                "must be above 0; trainer.journal.enable=false writes none");
  const TrainerCheckpointConfig& checkpoint = trainer.checkpoint;
  check.at_least(checkpoint.max_write_mb_per_s, 0, "trainer.checkpoint.max_write_mb_per_s");
  check.between(checkpoint.memory_freq, 0, kMaxCount, "trainer.checkpoint.memory_freq");
  check.between(checkpoint.local_freq, 0, kMaxCount, "trainer.checkpoint.local_freq");
  check.between(checkpoint.remote_freq, 0, kMaxCount, "trainer.checkpoint.remote_freq");
  check.path_if_set(checkpoint.remote_path, "trainer.checkpoint.remote_path");
  check.require(std::isfinite(trainer.fault.heartbeat_timeout) && trainer.fault.heartbeat_timeout >= 0.5,
                "trainer.fault.heartbeat_timeout", "must be at least 0.5 seconds");
  check.between(trainer.fault.max_restarts, 0, kMaxCount, "trainer.fault.max_restarts");
  check.require(std::isfinite(trainer.fault.window_minutes) && trainer.fault.window_minutes > 0,
                "trainer.fault.window_minutes", "must be above 0");
  const bool pools = trainer.resource_pools.critic == "own" || trainer.resource_pools.reference == "own";
  check.require(trainer.runtime == "local" || trainer.n_gpus_per_node > 1 || pools, "trainer.runtime",
                "it is that of the other ranks, and with trainer.n_gpus_per_node=1 there are none: leave it out");
  check_elasticity(check, config);
  check.require(trainer.ray.cpus_per_rank > 0, "trainer.ray.cpus_per_rank", "must be above 0");
  check.at_least(trainer.preflight.min_storage_gb_per_s, 0, "trainer.preflight.min_storage_gb_per_s");
  check.between(trainer.preflight.storage_test_mb, 0, 1'000'000, "trainer.preflight.storage_test_mb");
  check.at_least(trainer.preflight.max_clock_skew_s, 0, "trainer.preflight.max_clock_skew_s");
  check.between(trainer.log_val_generations, 0, kMaxCount, "trainer.log_val_generations");
  check.between(trainer.nnodes, 1, 100'000, "trainer.nnodes");
  check.between(trainer.n_gpus_per_node, 1, 1024, "trainer.n_gpus_per_node");
  check.between(trainer.num_threads, 0, 4096, "trainer.num_threads");
  check_ranks(check, config);
  const CommunicationConfig& communication = trainer.communication;
  check.between(communication.ranks_per_node, 0, 1024, "trainer.communication.ranks_per_node");
  check.share(communication.cross_node_share, "trainer.communication.cross_node_share");
  check.require(
      communication.cross_node_share_back >= 0 && communication.cross_node_share_back <= communication.cross_node_share,
      "trainer.communication.cross_node_share_back", "must be between 0 and trainer.communication.cross_node_share");
  check_pools(check, config);
  check_outlooks(check, trainer);
  check.between(config.numerics.virtual_tp, 1, 1024, "numerics.virtual_tp");
}

bool is_greedy(const RolloutConfig& rollout) { return rollout.temperature == 0 || !rollout.do_sample; }

}  // namespace

bool averages_in_response(std::string_view loss_mode) {
  return loss_mode == "gspo" || loss_mode == "sapo" || loss_mode == "geo_mean";
}

std::optional<Problem> find_problem(const Config& config, Purpose purpose) {
  Checker check(config);
  check.choices();
  check_data(check, config.data);
  if (purpose == Purpose::kRun)
    check.require(!config.actor_rollout_ref.model.path.empty(), "actor_rollout_ref.model.path",
                  "is not set: name the model's folder");
  if (!check.problem()) check_actor(check, config);
  if (!check.problem()) check_rollout(check, config);
  if (!check.problem()) check_reward(check, config);
  if (!check.problem()) check_critic(check, config);
  check_algorithm(check, config);
  check_trainer(check, config);
  return check.problem();
}

std::vector<std::string> find_warnings(const Config& config) {
  std::vector<std::string> out;
  const RolloutConfig& rollout = config.actor_rollout_ref.rollout;
  const std::string& estimator = config.algorithm.adv_estimator;
  const bool by_group = estimator.starts_with("grpo") || estimator == "rloo" || estimator == "opo" ||
                        estimator == "gpg" || estimator == "gdpo" || estimator == "optimal_token_baseline";
  if (config.trainer.val_only) return out;
  if (rollout.n > 1 && is_greedy(rollout) && estimator != "gae")
    out.push_back(
        fmt::format("actor_rollout_ref.rollout.n={} with greedy sampling (temperature={}, do_sample={}): all "
                    "samples of a prompt are equal, so every advantage is zero; use temperature=1.0",
                    rollout.n, rollout.temperature, rollout.do_sample));
  if (rollout.n == 1 && by_group)
    out.push_back(
        fmt::format("actor_rollout_ref.rollout.n=1 with algorithm.adv_estimator={}: a group of one has "
                    "nothing to compare with; use n=8, say",
                    estimator));
  if (config.data.train_batch_size % config.actor_rollout_ref.actor.ppo_mini_batch_size != 0)
    out.push_back(
        fmt::format("data.train_batch_size={} is not a multiple of actor_rollout_ref.actor."
                    "ppo_mini_batch_size={}: the last mini-batch of each step is smaller",
                    config.data.train_batch_size, config.actor_rollout_ref.actor.ppo_mini_batch_size));
  const ModelCommunicationConfig& critic = config.trainer.communication.critic;
  if (critic.attention != "auto" || critic.mlp != "auto" || critic.embedding != "auto")
    out.push_back("trainer.communication.critic: the critic runs on the first rank alone so far and exchanges nothing");
  return out;
}

std::vector<std::string> validate(const Config& config) {
  if (const auto problem = find_problem(config, Purpose::kRun)) throw ConfigError(problem->text);
  return find_warnings(config);
}

}  // namespace tandem
