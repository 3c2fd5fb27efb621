#include "app/options.h"

#include <algorithm>
#include <cstdlib>

#include "app/lora_options.h"
#include "app/ranks.h"
#include "app/run_folder.h"
#include "base/error.h"
#include "base/file.h"
#include "kernels/device_ops.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

fs::path hub_cache() {
  if (const char* cache = std::getenv("HF_HUB_CACHE")) return cache;
  if (const char* home = std::getenv("HF_HOME")) return fs::path(home) / "hub";
  return expand_user("~/.cache/huggingface/hub");
}

// models--ORG--NAME/refs/main names the snapshot.
fs::path cached_snapshot(const std::string& id) {
  std::string name = "models--" + id;
  for (size_t slash = name.find('/'); slash != std::string::npos; slash = name.find('/')) name.replace(slash, 1, "--");
  const fs::path repo = hub_cache() / name, ref = repo / "refs" / "main";
  if (!fs::exists(ref)) return {};
  std::string revision = read_file(ref);
  revision.erase(revision.find_last_not_of(" \n\r\t") + 1);
  const fs::path snapshot = repo / "snapshots" / revision;
  return fs::exists(snapshot / "config.json") ? snapshot : fs::path();
}

std::vector<fs::path> paths(const std::vector<std::string>& names) {
  std::vector<fs::path> all;
  for (const std::string& name : names) all.push_back(expand_user(name));
  return all;
}

SamplingParams sampling_base(const Config& config, const SpecialIds& special) {
  const RolloutConfig& rollout = config.actor_rollout_ref.rollout;
  SamplingParams sampling;
  sampling.max_tokens = derived_sizes(config).response_length;
  sampling.min_tokens = rollout.min_tokens;
  sampling.ignore_eos = rollout.ignore_eos;
  sampling.eos_ids = special.eos;
  for (const int64_t id : rollout.stop_token_ids) sampling.stop_token_ids.push_back(static_cast<TokenId>(id));
  sampling.stop = rollout.stop;
  sampling.seed = static_cast<uint64_t>(rollout.seed);
  return sampling;
}

PolicyLossOptions policy_loss_options(const Config& config) {
  const ActorConfig& actor = config.actor_rollout_ref.actor;
  const DerivedSizes sizes = derived_sizes(config);
  PolicyLossOptions options;
  options.clip_low = sizes.clip_low, options.clip_high = sizes.clip_high, options.clip_c = actor.clip_ratio_c;
  options.tau_pos = actor.tau_pos, options.tau_neg = actor.tau_neg;
  const PolicyLossConfig& loss = actor.policy_loss;
  options.clip_cov_ratio = loss.clip_cov_ratio;
  options.clip_cov_low = loss.clip_cov_lb, options.clip_cov_high = loss.clip_cov_ub;
  options.kl_cov_ratio = loss.kl_cov_ratio, options.kl_cov_coef = loss.ppo_kl_coef;
  options.dro_beta = loss.dro_beta.value_or(0);
  return options;
}

// Most tokens of any pass that is not rollout's.
int64_t pass_tokens(const Config& config) {
  return micro_batch_token_limit(config, !kernels::choose_device(config.trainer.device).is_cpu());
}

// The parts of actor.* and critic.* that say how samples are cut into passes.
template <class Section>
void set_micro_batches(BatchingOptions& options, const Section& section, int64_t token_limit) {
  options.shuffle = section.shuffle;
  options.seed = static_cast<uint64_t>(section.data_loader_seed);
  options.max_micro_tokens = token_limit;
  options.max_micro_samples = section.use_dynamic_bsz ? 0 : section.ppo_micro_batch_size_per_gpu.value_or(1);
}

TrainerOptions trainer_options(const Config& config) {
  const ActorConfig& actor = config.actor_rollout_ref.actor;
  const DerivedSizes sizes = derived_sizes(config);
  TrainerOptions options;
  options.policy = &find_policy_loss(actor.policy_loss.loss_mode);
  options.policy_options = policy_loss_options(config);
  options.aggregation = parse_loss_aggregation(actor.loss_agg_mode);
  options.norm_length = sizes.loss_scale;
  options.entropy_coeff = actor.entropy_coeff;
  options.use_kl_loss = actor.use_kl_loss;
  options.kl_loss_coef = actor.kl_loss_coef;
  options.kl_type = parse_kl_type(actor.kl_loss_type);
  options.mini_batch_samples = sizes.samples_per_mini_batch;
  options.epochs = actor.ppo_epochs;
  set_micro_batches(options, actor, pass_tokens(config));
  options.may_recompute = config.actor_rollout_ref.model.enable_gradient_checkpointing;
  return options;
}

ValueTrainerOptions value_trainer_options(const Config& config) {
  const CriticConfig& critic = config.critic;
  const ActorConfig& actor = config.actor_rollout_ref.actor;
  const DerivedSizes sizes = derived_sizes(config);
  ValueTrainerOptions options;
  options.clip_range = critic.cliprange_value;
  options.aggregation = parse_loss_aggregation(critic.loss_agg_mode.value_or(actor.loss_agg_mode));
  options.norm_length = sizes.loss_scale;
  options.mini_batch_samples =
      critic.ppo_mini_batch_size.value_or(actor.ppo_mini_batch_size) * config.actor_rollout_ref.rollout.n;
  options.epochs = critic.ppo_epochs.value_or(actor.ppo_epochs);
  const int64_t limit = critic.ppo_max_token_len_per_gpu.value_or(pass_tokens(config));
  set_micro_batches(options, critic, std::max(limit, sizes.model_length));
  options.may_recompute = critic.model.enable_gradient_checkpointing;
  return options;
}

RolloutCorrectionOptions correction_options(const Config& config) {
  const RolloutCorrectionConfig& correction = config.algorithm.rollout_correction;
  return parse_rollout_correction(correction.rollout_is.value_or(""), correction.rollout_is_threshold,
                                  correction.rollout_is_batch_normalize, correction.rollout_rs.value_or(""),
                                  correction.rollout_rs_threshold.value_or(""));
}

DatasetOptions data_options(const DataConfig& data, const std::vector<std::string>& files, int64_t max_samples,
                            int64_t trainer_seed) {
  DatasetOptions options;
  options.files = paths(files);
  options.prompt_key = data.prompt_key;
  options.reward_fn_key = data.reward_fn_key;
  options.max_prompt_length = static_cast<size_t>(data.max_prompt_length);
  options.truncation = parse_truncation(data.truncation);
  options.filter_overlong_prompts = data.filter_overlong_prompts;
  options.max_samples = max_samples;
  options.shuffle = data.shuffle;
  options.seed = static_cast<uint64_t>(data.seed.value_or(trainer_seed));
  options.num_threads = static_cast<size_t>(std::max<int64_t>(1, data.dataloader_num_workers));
  return options;
}

}  // namespace

CheckpointContents checkpoint_contents(const std::vector<std::string>& names) {
  const auto has = [&](const char* name) { return std::find(names.begin(), names.end(), name) != names.end(); };
  return {has("model") || has("hf_model"), has("optimizer"), has("extra"), has("hf_model")};
}

OptimizerOptions optimizer_options(const OptimConfig& optim, int64_t total_steps) {
  OptimizerOptions options;
  options.lr = optim.lr;
  options.beta1 = optim.betas.at(0);
  options.beta2 = optim.betas.at(1);
  options.weight_decay = optim.weight_decay;
  options.clip_grad = optim.clip_grad;
  options.schedule = optim.lr_scheduler_type == "cosine" ? LrSchedule::kCosine : LrSchedule::kConstant;
  options.total_steps = total_steps;
  options.warmup_steps = optim.lr_warmup_steps >= 0
                             ? optim.lr_warmup_steps
                             : static_cast<int64_t>(optim.lr_warmup_steps_ratio * static_cast<double>(total_steps));
  options.min_lr_ratio = optim.min_lr_ratio;
  options.num_cycles = optim.num_cycles;
  return options;
}

fs::path resolve_model(const std::string& path, std::string_view key) {
  const fs::path folder = expand_user(path);
  if (fs::exists(folder / "config.json")) return folder;
  if (fs::exists(folder))
    throw ConfigError(folder.string() + " holds no config.json; give a folder in Hugging Face layout");
  if (const fs::path snapshot = path.empty() ? fs::path() : cached_snapshot(path); !snapshot.empty()) return snapshot;
  const bool looks_like_id =
      std::count(path.begin(), path.end(), '/') == 1 && !path.starts_with(".") && !path.starts_with("/");
  if (looks_like_id)
    throw ConfigError("model " + path + " is neither a folder nor in the Hugging Face cache " + hub_cache().string() +
                      "; download it with: hf download " + path);
  throw ConfigError("there is no model folder '" + path +
                    "'; give one in Hugging Face layout (in training: " + std::string(key) + ")");
}

Config supported(Config config) {
  const auto refuse = [](bool bad, const char* what) {
    if (bad) throw ConfigError(what);
  };
  const bool gpu = !kernels::choose_device(config.trainer.device).is_cpu();
  refuse(gpu && needs_critic(config) && config.trainer.n_gpus_per_node > 1,
         "algorithm.adv_estimator=gae: a critic runs beside one GPU's policy only so far; set "
         "trainer.n_gpus_per_node=1, or another estimator");
  const Layout ranks = run_layout(config);
  refuse(gpu && ranks.tp * ranks.pp * ranks.cp > 1,
         "actor_rollout_ref.actor: tensor, pipeline and sequence parallel sizes above 1 need trainer.device=cpu");
  refuse(gpu && config.trainer.n_gpus_per_node > kernels::num_gpus(),
         "trainer.n_gpus_per_node: more than the GPUs that this machine shows; set it to their number, or "
         "trainer.device=cpu for as many processes");
  refuse(gpu && config.algorithm.adv_estimator == "optimal_token_baseline",
         "algorithm.adv_estimator=optimal_token_baseline runs on the CPU only so far; set trainer.device=cpu");
  refuse(config.numerics.mode == "fast",
         "numerics=fast: the exact kernels are the quickest there are; leave numerics=exact");
  refuse(config.actor_rollout_ref.rollout.block_size != kernels::kKvBlock,
         "actor_rollout_ref.rollout.block_size: blocks of the cache hold 16 tokens; leave it out");
  return config;
}

fs::path run_folder(const Config& config) { return run_folder_of(config.trainer.default_local_dir); }

namespace {

// Of the models that stand beside the policy and only compute.
int64_t frozen_parameters(const Config& config, const fs::path& policy) {
  const bool second_model = needs_reference(config) && !config.actor_rollout_ref.model.uses_lora();
  int64_t count = second_model ? num_parameters(load_model_config(policy)) : 0;
  if (const auto reward = model_reward_options(config)) {
    ModelConfig model = load_model_config(reward->model_path);
    model.value_head = true;
    count += num_parameters(model);
  }
  return count;
}

fs::path critic_folder(const Config& config) {
  return resolve_model(config.critic.model.path.value_or(config.actor_rollout_ref.model.path));
}

int64_t critic_parameters(const Config& config) {
  if (!needs_critic(config)) return 0;
  ModelConfig model = load_model_config(critic_folder(config));
  model.value_head = true;
  return num_parameters(model);
}

}  // namespace

EngineOptions engine_options(const Config& config, const SpecialIds& special, int64_t total_optimizer_steps) {
  const RolloutConfig& rollout = config.actor_rollout_ref.rollout;
  EngineOptions options;
  options.model_path = resolve_model(config.actor_rollout_ref.model.path);
  options.lora = lora_options(config.actor_rollout_ref.model, static_cast<uint64_t>(config.trainer.seed),
                              "actor_rollout_ref.model.");
  options.max_model_len = derived_sizes(config).model_length;
  options.scheduler = {rollout.max_num_seqs, rollout.max_num_batched_tokens, rollout.enable_chunked_prefill};
  options.prefix_caching = rollout.enable_prefix_caching;
  options.kv_cache_bytes = rollout.kv_cache_memory_mb << 20;
  options.device = kernels::choose_device(config.trainer.device);
  options.state_parts = num_ranks(config) > 1 ? run_layout(config).dp_shard : 0;
  options.read_on_joining = num_ranks(config) > 1 && options.device.is_cpu();
  options.gpu_memory_utilization = rollout.gpu_memory_utilization;
  options.frozen_parameters = frozen_parameters(config, options.model_path);
  options.trained_beside = critic_parameters(config);
  options.sampling = options.validation_sampling = sampling_base(config, special);
  options.sampling.temperature = rollout.do_sample ? rollout.temperature : 0;
  options.sampling.top_k = rollout.top_k;
  options.sampling.top_p = rollout.top_p;
  options.sampling.min_p = rollout.min_p;
  const ValSamplingConfig& val = rollout.val_kwargs;
  options.validation_sampling.temperature = val.do_sample ? val.temperature : 0;
  options.validation_sampling.top_k = val.top_k;
  options.validation_sampling.top_p = val.top_p;
  options.num_samples = rollout.n;
  options.num_validation_samples = val.n;
  options.trainer = trainer_options(config);
  options.optimizer = optimizer_options(config.actor_rollout_ref.actor.optim, total_optimizer_steps);
  options.exact = config.numerics.mode == "exact";
  options.correction = correction_options(config);
  options.save = checkpoint_contents(config.actor_rollout_ref.actor.checkpoint.save_contents);
  options.load = checkpoint_contents(config.actor_rollout_ref.actor.checkpoint.load_contents);
  return options;
}

bool needs_reference(const Config& config) {
  return config.actor_rollout_ref.actor.use_kl_loss || config.algorithm.use_kl_in_reward;
}

ReferenceOptions reference_options(const Config& config) {
  ReferenceOptions options;
  options.device = kernels::choose_device(config.trainer.device);
  options.model_path = resolve_model(config.actor_rollout_ref.model.path);
  options.max_model_len = derived_sizes(config).model_length;
  options.max_micro_tokens = pass_tokens(config);
  options.kl_type = parse_kl_type(config.algorithm.kl_penalty);
  return options;
}

bool needs_critic(const Config& config) { return config.algorithm.adv_estimator == "gae"; }

CriticOptions critic_options(const Config& config, int64_t total_steps) {
  CriticOptions options;
  options.model_path = critic_folder(config);
  options.max_model_len = derived_sizes(config).model_length;
  options.device = kernels::choose_device(config.trainer.device);
  options.trainer = value_trainer_options(config);
  const int64_t samples = derived_sizes(config).samples_per_step, size = options.trainer.mini_batch_samples;
  options.optimizer =
      optimizer_options(config.critic.optim, total_steps * ((samples + size - 1) / size) * options.trainer.epochs);
  options.save = checkpoint_contents(config.critic.checkpoint.save_contents);
  options.load = checkpoint_contents(config.critic.checkpoint.load_contents);
  options.seed = static_cast<uint64_t>(config.trainer.seed);
  return options;
}

std::optional<TokenAdvantageOptions> token_advantage_options(const Config& config) {
  const auto estimator = find_token_estimator(config.algorithm.adv_estimator);
  if (!estimator) return std::nullopt;
  return TokenAdvantageOptions{*estimator, config.algorithm.gamma, config.algorithm.lam};
}

ProgramOptions program_options(const Config& config, size_t num_train_prompts) {
  const AlgorithmConfig& algorithm = config.algorithm;
  const FilterGroupsConfig& filter = algorithm.filter_groups;
  ProgramOptions options;
  options.collect.prompts_per_step = static_cast<size_t>(config.data.train_batch_size);
  options.collect.greedy_baseline = algorithm.adv_estimator == "remax";
  options.collect.filter_groups = filter.enable;
  options.collect.filter_metric = filter.metric.value_or("seq_reward");
  options.collect.max_num_gen_batches = filter.max_num_gen_batches;
  options.collect.num_train_prompts = num_train_prompts;
  const KlCtrlConfig& kl = algorithm.kl_ctrl;
  options.kl = {algorithm.use_kl_in_reward, kl.type == "adaptive", kl.kl_coef, kl.target_kl,
                static_cast<double>(kl.horizon)};
  const auto estimator = find_advantage_estimator(algorithm.adv_estimator);
  options.advantage = {estimator.value_or(AdvantageEstimator::kGrpo), algorithm.norm_adv_by_std_in_grpo,
                       algorithm.gdpo_reward_keys, algorithm.gdpo_reward_weights};
  options.correct_rollout = correction_options(config).enable;
  options.squared_probs = algorithm.adv_estimator == "optimal_token_baseline";
  options.critic_warmup = config.trainer.critic_warmup;
  return options;
}

RewardServerOptions server_options(const RewardConfig& reward) {
  const RewardModelConfig& model = reward.reward_model;
  RewardServerOptions options;
  options.endpoint = model.endpoint.value_or("");
  options.model = model.model_path.value_or("");
  options.prompt_template = model.prompt_template.value_or("");
  options.score_regex = model.score_regex.value_or("");
  options.max_tokens = model.max_tokens;
  options.request_kwargs = model.request_kwargs.text;
  if (model.api_key_env) {
    const char* key = std::getenv(model.api_key_env->c_str());
    if (key == nullptr || *key == '\0')
      throw ConfigError("reward.reward_model.api_key_env=" + *model.api_key_env +
                        ": that environment variable is not set; export the key in it");
    options.api_key = key;
  }
  options.max_concurrent = static_cast<size_t>(model.max_concurrent);
  options.max_retries = static_cast<size_t>(model.max_retries);
  options.timeout_seconds = model.timeout;
  options.sample_timeout_seconds = reward.timeout;
  return options;
}

RewardOptions reward_options(const Config& config) {
  const RewardConfig& reward = config.reward;
  RewardOptions options;
  options.rule = reward.rule.value_or("");
  if (reward.custom_reward_function.path) options.path = expand_user(*reward.custom_reward_function.path);
  options.name = reward.custom_reward_function.name;
  options.reward_kwargs = reward.custom_reward_function.reward_kwargs.text;
  options.num_workers = static_cast<size_t>(reward.num_workers);
  options.timeout_seconds = reward.timeout;
  if (uses_reward_server(reward)) options.server = server_options(reward);
  return options;
}

std::optional<ModelRewardOptions> model_reward_options(const Config& config) {
  if (!uses_reward_model(config.reward)) return std::nullopt;
  ModelRewardOptions options;
  options.model_path = resolve_model(*config.reward.reward_model.model_path, "reward.reward_model.model_path");
  options.device = kernels::choose_device(config.trainer.device);
  options.max_micro_tokens = pass_tokens(config);
  return options;
}

OverlongOptions overlong_options(const Config& config) {
  const OverlongBufferConfig& buffer = config.reward.reward_kwargs.overlong_buffer_cfg;
  OverlongOptions options;
  options.enable = config.reward.reward_manager.name == "dapo" && buffer.enable;
  options.len = buffer.len;
  options.penalty_factor = buffer.penalty_factor;
  options.max_response_length =
      config.reward.reward_kwargs.max_resp_len.value_or(derived_sizes(config).response_length);
  check_overlong(options);
  return options;
}

DatasetOptions train_data_options(const Config& config) {
  return data_options(config.data, config.data.train_files, config.data.train_max_samples, config.trainer.seed);
}

DatasetOptions validation_data_options(const Config& config) {
  return data_options(config.data, config.data.val_files, config.data.val_max_samples, config.trainer.seed);
}

LoaderOptions loader_options(const Config& config) {
  LoaderOptions options;
  options.batch_size = static_cast<size_t>(config.data.train_batch_size);
  options.shuffle = config.data.shuffle;
  options.seed = static_cast<uint64_t>(config.data.seed.value_or(config.trainer.seed));
  return options;
}

}  // namespace tandem
