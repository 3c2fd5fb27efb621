// The lists of verl_keys.h: data only.
#include <algorithm>
#include <array>

#include "config/verl_keys.h"

namespace tandem {
namespace {

bool any(const Value& value) { return value.kind != Value::Kind::kNull; }
bool not_empty(const Value& value) { return !value.is_empty() && !(value.is_scalar() && value.text.empty()); }
bool is_true(const Value& value) { return value.is_scalar() && as_bool(value.text).value_or(false); }
bool above_zero(const Value& value) { return value.is_scalar() && as_number(value.text).value_or(0) > 0; }
bool above_one(const Value& value) { return value.is_scalar() && as_number(value.text).value_or(0) > 1; }
template <size_t N>
bool one_of(const Value& value, const std::array<std::string_view, N>& words) {
  return value.is_scalar() && std::ranges::find(words, std::string_view(value.text)) != words.end();
}
bool other_estimator(const Value& value) {
  return one_of(value,
                std::array<std::string_view, 3>{"tir_optimal_token_baseline", "grpo_vectorized", "rloo_vectorized"});
}
bool bypass_loss(const Value& value) { return one_of(value, std::array<std::string_view, 1>{"bypass_mode"}); }
bool reinforce(const Value& value) { return one_of(value, std::array<std::string_view, 1>{"reinforce"}); }
bool importlib(const Value& value) { return one_of(value, std::array<std::string_view, 1>{"importlib"}); }
bool other_manager(const Value& value) {
  return one_of(value, std::array<std::string_view, 5>{"gdpo", "rate_limited", "remote", "prime", "batch"});
}
bool other_optimizer(const Value& value) { return any(value) && !equal_ignoring_case(value.text, "adamw"); }
bool other_agent_loop(const Value& value) { return any(value) && value.text != "single_turn_agent"; }
bool other_device(const Value& value) { return one_of(value, std::array<std::string_view, 3>{"npu", "xpu", "gpu"}); }

constexpr std::string_view kNoOldLogprobPass =
    "there is no old-log-prob pass: sampled log-probs are the training pass's, bit for bit";
constexpr std::string_view kOneEngine = "one engine generates and trains: nothing to choose, to wake or to copy";
constexpr std::string_view kOneDevice = "on one device nothing is sharded or moved";
constexpr std::string_view kNoRay = "no Ray of verl's kind: trainer.runtime and trainer.ray.* say who starts the ranks";
constexpr std::string_view kCriticFollows =
    "algorithm.adv_estimator decides: gae trains a critic, the others have none";
constexpr std::string_view kNoMultiTurn = "multi-turn sampling is off";
constexpr std::string_view kNoProfiler =
    "timing is always on: see timing_s/*; trainer.profile.steps names the steps to trace";
constexpr std::string_view kOwnServer = "a reward model runs in this process, or in a server that is set up there";
constexpr std::string_view kOwnKernels = "the kernels are Tandem's own, compiled ahead";
constexpr std::string_view kTextOnly = "prompts are text";
constexpr std::string_view kNoCode = "models are read from files, not from Python code";
constexpr std::string_view kRatiosAreOne = "under numerics=exact every importance weight is 1: nothing to correct";

constexpr AcceptedKey kAccepted[] = {
    {"_target_", "names a Python class"},
    {"*._target_", "names a Python class"},
    {"defaults", "Hydra's list of files: pass the files to Tandem instead"},
    {"hydra.*", "there is no Hydra: runs go to trainer.default_local_dir"},
    {"model_engine", kOneEngine},
    {"ray_kwargs.*", kNoRay},
    {"transfer_queue.*", kNoRay},
    {"global_profiler.*", kNoProfiler},
    {"*.profiler.*", kNoProfiler},

    {"data.return_raw_chat", "prompts are always templated here"},
    {"data.return_raw_input_ids", "prompts are always templated here"},
    {"data.return_full_prompt", "prompts are always templated here"},
    {"data.return_multi_modal_inputs", kTextOnly},
    {"data.image_key", kTextOnly},
    {"data.video_key", kTextOnly},
    {"data.image_patch_size", kTextOnly},
    {"data.mm_processor_kwargs.*", kTextOnly},
    {"data.tokenizer", "the tokenizer is the model's"},
    {"data.use_shm", "files are mapped into memory as they are"},
    {"data.trust_remote_code", kNoCode},
    {"data.gen_batch_size", "prompts are fetched train_batch_size at a time"},
    {"data.filter_overlong_prompts_workers", "dataloader_num_workers threads filter"},
    {"data.dataset_type", "rows are read from parquet and JSON lines"},

    {"actor_rollout_ref.hybrid_engine", kOneEngine},
    {"actor_rollout_ref.model.use_remove_padding", "sequences are always packed, never padded"},
    {"actor_rollout_ref.model.use_shm", "files are mapped into memory as they are"},
    {"actor_rollout_ref.model.use_fused_kernels", kOwnKernels},
    {"actor_rollout_ref.model.fused_kernel_options.*", kOwnKernels},
    {"actor_rollout_ref.model.use_liger", kOwnKernels},
    {"actor_rollout_ref.model.trust_remote_code", kNoCode},
    {"actor_rollout_ref.model.lora.*", "actor_rollout_ref.model.lora_rank and its kin are read"},
    {"actor_rollout_ref.model.tiled_mlp.*", kOwnKernels},

    {"actor_rollout_ref.ref.ulysses_sequence_parallel_size", "the reference model computes on one rank"},
    {"actor_rollout_ref.*.fsdp_config.*", kOneDevice},
    {"actor_rollout_ref.*.megatron.*", kOneDevice},
    {"actor_rollout_ref.*.veomni.*", kOneDevice},
    {"actor_rollout_ref.*.torchtitan.*", kOneDevice},
    {"actor_rollout_ref.actor.use_torch_compile", kOwnKernels},
    {"actor_rollout_ref.actor.use_fused_kernels", kOwnKernels},
    {"actor_rollout_ref.actor.use_remove_padding", "sequences are always packed, never padded"},
    {"actor_rollout_ref.actor.use_prefix_grouper", "a group's prompt is always computed once"},
    {"actor_rollout_ref.actor.entropy_from_logits_with_chunking", kOwnKernels},
    {"actor_rollout_ref.actor.entropy_checkpointing", kOwnKernels},
    {"actor_rollout_ref.actor.calculate_entropy", "entropy is reported whenever it is at hand"},
    {"actor_rollout_ref.actor.rollout_n", "rollout.n is taken"},
    {"actor_rollout_ref.actor.load_weight", "weights are always loaded"},
    {"actor_rollout_ref.actor.freeze_vision_tower", kTextOnly},
    {"actor_rollout_ref.actor.router_replay.*", "sampling and training route alike"},
    {"actor_rollout_ref.actor.optim.total_training_steps", "taken from trainer.*"},
    {"actor_rollout_ref.actor.optim.optimizer_impl", "AdamW is Tandem's own"},
    {"actor_rollout_ref.actor.optim.override_optimizer_config", "AdamW is set by lr, betas and weight_decay"},
    {"actor_rollout_ref.actor.optim.zero_indexed_step", "the first step uses the first rate of the schedule"},
    {"actor_rollout_ref.actor.checkpoint.async_save", "trainer.checkpoint.async_save decides, for all roles"},
    {"actor_rollout_ref.actor.checkpoint.mbridge_config.*", kOneDevice},

    {"actor_rollout_ref.rollout.name", kOneEngine},
    {"actor_rollout_ref.rollout.mode", kOneEngine},
    {"actor_rollout_ref.rollout.dtype", kOneEngine},
    {"actor_rollout_ref.rollout.load_format", kOneEngine},
    {"actor_rollout_ref.rollout.layered_summon", kOneEngine},
    {"actor_rollout_ref.rollout.free_cache_engine", kOneEngine},
    {"actor_rollout_ref.rollout.multi_stage_wake_up", kOneEngine},
    {"actor_rollout_ref.rollout.enable_sleep_mode", kOneEngine},
    {"actor_rollout_ref.rollout.update_weights_bucket_megabytes", kOneEngine},
    {"actor_rollout_ref.rollout.checkpoint_engine.*", kOneEngine},
    {"actor_rollout_ref.rollout.engine_kwargs.*", kOneEngine},
    {"actor_rollout_ref.rollout.enforce_eager", kOwnKernels},
    {"actor_rollout_ref.rollout.cudagraph_capture_sizes", kOwnKernels},
    {"actor_rollout_ref.rollout.full_determinism", "sampling is always deterministic"},
    {"actor_rollout_ref.rollout.calculate_log_probs", "sampled log-probs are always kept"},
    {"actor_rollout_ref.rollout.log_prob_*", kNoOldLogprobPass},
    {"actor_rollout_ref.rollout.disable_log_stats", "the engine's figures are always in the metrics"},
    {"actor_rollout_ref.rollout.prometheus.*", "metrics go to trainer.logger"},
    {"actor_rollout_ref.rollout.trace.*", "samples are written to trainer.rollout_data_dir"},
    {"actor_rollout_ref.rollout.skip_dump_dir", "samples are written to trainer.rollout_data_dir"},
    {"actor_rollout_ref.rollout.logprobs_mode", "log-probs are those after temperature"},
    {"actor_rollout_ref.rollout.scheduling_policy", "sequences are served in the order they came"},
    {"actor_rollout_ref.rollout.over_sample_rate", "every sample asked for is used"},
    {"actor_rollout_ref.rollout.skip_tokenizer_init", "text and tokens come from one tokenizer"},
    {"actor_rollout_ref.rollout.multi_turn.*", kNoMultiTurn},
    {"actor_rollout_ref.rollout.agent.*", kNoMultiTurn},
    {"actor_rollout_ref.rollout.nnodes", kOneEngine},
    {"actor_rollout_ref.rollout.n_gpus_per_node", kOneEngine},
    {"actor_rollout_ref.rollout.expert_parallel_size", kOneDevice},

    {"actor_rollout_ref.ref.strategy", kOneDevice},
    {"actor_rollout_ref.ref.rollout_n", "rollout.n is taken"},
    {"actor_rollout_ref.ref.use_torch_compile", kOwnKernels},
    {"actor_rollout_ref.ref.log_prob_*", "the reference pass uses the actor's micro-batches"},
    {"actor_rollout_ref.ref.entropy_*", kOwnKernels},
    {"actor_rollout_ref.ref.router_replay.*", "sampling and training route alike"},

    {"critic.enable", kCriticFollows},
    {"critic.strategy", kOneDevice},
    {"critic.nccl_timeout", kOneDevice},
    {"critic.fsdp.*", kOneDevice},
    {"critic.fsdp_config.*", kOneDevice},
    {"critic.megatron.*", kOneDevice},
    {"critic.veomni.*", kOneDevice},
    {"critic.torchtitan.*", kOneDevice},
    {"critic.model.fsdp_config.*", kOneDevice},
    {"critic.model.megatron_config.*", kOneDevice},
    {"critic.rollout_n", "rollout.n is taken"},
    {"critic.load_weight", "weights are always loaded"},
    {"critic.use_torch_compile", kOwnKernels},
    {"critic.forward_*", "values are computed in the update's micro-batches"},
    {"critic.ppo_infer_*", "values are computed in the update's micro-batches"},
    {"critic.model.use_shm", "files are mapped into memory as they are"},
    {"critic.model.use_remove_padding", "sequences are always packed, never padded"},
    {"critic.model.tokenizer_path", "the critic reads the policy's tokens"},
    {"critic.model.trust_remote_code", kNoCode},
    {"critic.model.tiled_mlp.*", kOwnKernels},
    {"critic.model.lora_alpha", "all its weights are trained"},
    {"critic.model.target_modules", "all its weights are trained"},
    {"critic.model.exclude_modules", "all its weights are trained"},
    {"critic.optim.total_training_steps", "taken from trainer.*"},
    {"critic.optim.optimizer_impl", "AdamW is Tandem's own"},
    {"critic.optim.override_optimizer_config", "AdamW is set by lr, betas and weight_decay"},
    {"critic.optim.zero_indexed_step", "the first step uses the first rate of the schedule"},
    {"critic.checkpoint.async_save", "trainer.checkpoint.async_save decides, for all roles"},
    {"critic.checkpoint.mbridge_config.*", kOneDevice},

    {"reward.reward_manager.module.*", "only source=importlib reads it"},
    {"reward.reward_kwargs.overlong_buffer_cfg.log", "the penalty is always in the metrics"},
    {"reward.sandbox_fusion.*", "no rule here runs code"},
    {"reward.reward_model.enable_resource_pool", kOwnServer},
    {"reward.reward_model.n_gpus_per_node", kOwnServer},
    {"reward.reward_model.nnodes", kOwnServer},
    {"reward.reward_model.rollout.*", kOwnServer},
    {"reward.reward_model.model.*", kOwnServer},
    {"reward.reward_model.strategy", kOwnServer},
    {"reward.reward_model.micro_batch_size*", kOwnServer},
    {"reward.reward_model.max_length", kOwnServer},
    {"reward.reward_model.use_dynamic_bsz", kOwnServer},
    {"reward.reward_model.forward_max_token_len_per_gpu", kOwnServer},
    {"reward.reward_model.ulysses_sequence_parallel_size", kOwnServer},
    {"reward.reward_model.launch_reward_fn_async", "rewards are always computed while others are sampled"},
    {"reward.reward_model.profiler.*", kNoProfiler},
    {"sandbox_fusion.*", "no rule here runs code"},

    {"algorithm.filter_groups.max_inflight_gen_batches", "a step draws one batch at a time"},
    {"algorithm.pf_ppo.*", "use_pf_ppo is off"},
    {"algorithm.rollout_is*", kRatiosAreOne},

    {"trainer.balance_batch", "the work of several ranks is always balanced"},
    {"trainer.max_critic_ckpt_to_keep", "actor and critic are kept together, as max_actor_ckpt_to_keep says"},
    {"trainer.use_v1", "there is one trainer"},
    {"trainer.v1.*", "there is one trainer"},
    {"trainer.use_legacy_worker_impl", "there is one trainer"},
    {"trainer.ray_wait_register_center_timeout", kNoRay},
    {"trainer.del_local_ckpt_after_load", "checkpoints are kept as max_actor_ckpt_to_keep says"},
    {"trainer.esi_redundant_time", "a step is saved when it is done, whenever the machine goes"},
};

constexpr RefusedKey kRefused[] = {
    {"algorithm.adv_estimator", other_estimator, "tir_*, *_vectorized",
     "not there: use algorithm.adv_estimator=optimal_token_baseline, grpo or rloo", ""},
    {"algorithm.rollout_correction.loss_type", reinforce, "reinforce",
     "use actor_rollout_ref.actor.policy_loss.loss_mode=reinforce", ""},
    {"algorithm.use_pf_ppo", is_true, "true", "not there: leave it out", "off, as here"},
    {"trainer.nnodes", above_one, "> 1", "one machine so far: use trainer.nnodes=1", ""},
    {"trainer.device", other_device, "npu, xpu, gpu", "use trainer.device=auto, cuda or cpu", ""},
    {"trainer.default_hdfs_dir", not_empty, "a path", "write to a mounted folder: trainer.default_local_dir",
     "checkpoints go to trainer.default_local_dir"},
    {"numerics.virtual_tp", above_one, "> 1", "one device so far: use numerics.virtual_tp=1", ""},
    {"actor_rollout_ref.rollout.data_parallel_size", above_one, "> 1",
     "one device so far: use actor_rollout_ref.rollout.data_parallel_size=1", kOneDevice},
    {"actor_rollout_ref.rollout.pipeline_model_parallel_size", above_one, "> 1",
     "one device so far: use actor_rollout_ref.rollout.pipeline_model_parallel_size=1", kOneDevice},
    {"actor_rollout_ref.*.megatron.expert*_parallel_size", above_one, "> 1", "not there yet: leave it at 1",
     kOneDevice},
    {"actor_rollout_ref.actor.fsdp_config.ulysses_sequence_parallel_size", above_one, "> 1",
     "set actor_rollout_ref.actor.ulysses_sequence_parallel_size", kOneDevice},
    {"actor_rollout_ref.rollout.quantization", not_empty, "any",
     "sampling and training share their weights: leave it out", kOneEngine},
    {"actor_rollout_ref.rollout.quantization_config_file", not_empty, "any",
     "sampling and training share their weights: leave it out", kOneEngine},
    {"actor_rollout_ref.rollout.multi_turn.enable", is_true, "true",
     "multi-turn sampling is not there yet: leave it out", kNoMultiTurn},
    {"actor_rollout_ref.rollout.agent.agent_loop_config_path", not_empty, "a path",
     "agent loops are not there yet: leave it out", kNoMultiTurn},
    {"actor_rollout_ref.rollout.agent.default_agent_loop", other_agent_loop, "all but single_turn_agent",
     "agent loops are not there yet: use single_turn_agent", "prompts get one response, as here"},
    {"actor_rollout_ref.rollout.skip_rollout", is_true, "true", "samples cannot be replayed from a dump: leave it out",
     "off, as here"},
    {"actor_rollout_ref.rollout.repetition_penalty", [](const Value& v) { return any(v) && as_number(v.text) != 1.0; },
     "all but 1", "it would part sampling from training: use min_p or top_p", "1 changes nothing"},
    {"actor_rollout_ref.rollout.log_prob_micro_batch_size", any, "",
     "use actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu (which has no effect here), or leave it out",
     kNoOldLogprobPass},
    {"actor_rollout_ref.ref.log_prob_micro_batch_size", any, "",
     "use actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu (which has no effect here), or leave it out",
     "the reference pass uses the actor's micro-batches"},
    {"actor_rollout_ref.actor.ppo_micro_batch_size", any, "",
     "use actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu, or leave it out: micro-batches are filled by tokens",
     "micro-batches are filled by tokens"},
    {"actor_rollout_ref.actor.optim.optimizer", other_optimizer, "all but AdamW",
     "AdamW is the optimizer: leave it out", "AdamW, as here"},
    {"actor_rollout_ref.actor.policy_loss.loss_mode", bypass_loss, "bypass_mode",
     "set algorithm.rollout_correction.bypass_mode=true instead", ""},
    {"critic.ppo_micro_batch_size", any, "",
     "use critic.ppo_micro_batch_size_per_gpu, or leave it out: micro-batches are filled by tokens",
     "micro-batches are filled by tokens"},
    {"critic.optim.optimizer", other_optimizer, "all but AdamW", "AdamW is the optimizer: leave it out",
     "AdamW, as here"},
    {"critic.ulysses_sequence_parallel_size", above_one, "> 1",
     "one device so far: use ulysses_sequence_parallel_size=1", kOneDevice},
    {"critic.megatron.*_parallel_size", above_one, "> 1", "one device so far: leave the parallel sizes at 1",
     kOneDevice},
    {"critic.model.lora_rank", above_zero, "> 0", "a critic trains all its weights: leave it out",
     "all its weights are trained"},
    {"critic.model.override_config.*", not_empty, "any", "change the model's config.json instead",
     "config.json holds as it is"},
    {"critic.model.external_lib", not_empty, "any", "Python code cannot be loaded: leave it out", kNoCode},
    {"critic.model.enable_activation_offload", is_true, "true",
     "not there yet: use enable_gradient_checkpointing=true and smaller micro-batches", "off, as here"},
    {"actor_rollout_ref.model.lora.rank", above_zero, "> 0", "use actor_rollout_ref.model.lora_rank",
     "actor_rollout_ref.model.lora_rank and its kin are read"},
    {"actor_rollout_ref.model.custom_chat_template", not_empty, "any",
     "put the template into the model's tokenizer_config.json or chat_template.jinja", "the model's own is used"},
    {"actor_rollout_ref.model.override_config.*", not_empty, "any", "change the model's config.json instead",
     "config.json holds as it is"},
    {"actor_rollout_ref.model.external_lib", not_empty, "any", "Python code cannot be loaded: leave it out", kNoCode},
    {"actor_rollout_ref.model.enable_activation_offload", is_true, "true",
     "not there yet: use enable_gradient_checkpointing=true and smaller micro-batches", "off, as here"},
    {"actor_rollout_ref.ref.model.*", not_empty, "any",
     "the reference is the starting model: set actor_rollout_ref.model.path", "the reference is the starting model"},
    {"data.custom_cls.*", not_empty, "any", "write the rows as parquet or JSON lines and name them in data.train_files",
     "rows are read from files"},
    {"data.sampler.*", not_empty, "any", "order the rows in the file and set data.shuffle=false",
     "rows are drawn as data.shuffle says"},
    {"data.datagen.*", not_empty, "any", "write the rows to a file first", "rows are read from files"},
    {"data.validation_shuffle", is_true, "true", "validation keeps the file's order: leave it out", "off, as here"},
    {"data.tool_config_path", not_empty, "any", "tools are not there yet: leave it out", kNoMultiTurn},
    {"reward.reward_manager.name", other_manager, "gdpo, rate_limited, remote, prime, batch",
     "use naive or dapo; a custom_reward_function may be async and call a server", ""},
    {"reward.reward_manager.source", importlib, "importlib", "use reward.custom_reward_function.path",
     "managers are built in"},
    {"reward.sandbox_fusion.url", not_empty, "a URL", "call the sandbox from a custom_reward_function",
     "no rule here runs code"},
};

constexpr RenamedKey kRenamed[] = {
    {"custom_reward_function.", "reward.custom_reward_function."},
    {"reward_model.reward_manager", "reward.reward_manager.name"},
    {"reward_model.reward_kwargs.", "reward.reward_kwargs."},
    {"reward_model.num_workers", "reward.num_workers"},
    {"reward_model.sandbox_fusion.", "reward.sandbox_fusion."},
    {"reward_model.model.path", "reward.reward_model.model_path"},
    {"reward_model.", "reward.reward_model."},
    {"actor_rollout_ref.actor.grad_clip", "actor_rollout_ref.actor.optim.clip_grad"},
    {"critic.grad_clip", "critic.optim.clip_grad"},
    {"critic.optim.warmup_style", "critic.optim.lr_scheduler_type"},
    {"critic.checkpoint.contents", "critic.checkpoint.save_contents"},
    {"actor_rollout_ref.actor.optim.warmup_style", "actor_rollout_ref.actor.optim.lr_scheduler_type"},
    {"actor_rollout_ref.actor.checkpoint.contents", "actor_rollout_ref.actor.checkpoint.save_contents"},
    {"global_profiler.steps", "trainer.profile.steps"},
    {"trainer.profile_steps", "trainer.profile.steps"},
    {"numerics", "numerics.mode"},
};

constexpr ChangedDefault kChanged[] = {
    {"actor_rollout_ref.model.path", "~/models/deepseek-llm-7b-chat", "no model is better than a surprising one"},
    {"actor_rollout_ref.actor.use_dynamic_bsz", "false",
     "token budgets need no tuning; setting ppo_micro_batch_size_per_gpu turns it off"},
    {"actor_rollout_ref.actor.ppo_max_token_len_per_gpu", "16384", "a CPU has less to hold them in"},
    {"actor_rollout_ref.actor.clip_ratio_low", "0.2", "so that setting clip_ratio alone has an effect"},
    {"actor_rollout_ref.actor.clip_ratio_high", "0.2", "so that setting clip_ratio alone has an effect"},
    {"actor_rollout_ref.rollout.tensor_model_parallel_size", "2", "one device"},
    {"critic.model.path", "~/models/deepseek-llm-7b-chat", "the policy's model is the usual start"},
    {"critic.use_dynamic_bsz", "false",
     "token budgets need no tuning; setting ppo_micro_batch_size_per_gpu turns it off"},
    {"critic.ppo_max_token_len_per_gpu", "32768", "the actor's"},
    {"trainer.n_gpus_per_node", "8", "one process is the simplest start"},
    {"trainer.device", "cuda", "a machine without a GPU trains on its CPU"},
    {"trainer.logger", "[console, wandb]", "works without an account"},
    {"trainer.default_local_dir", "checkpoints/${trainer.project_name}/${trainer.experiment_name}",
     "what a run writes is in one folder"},
};

constexpr std::string_view kTrackers[] = {"vemlp_wandb", "clearml", "rl_insight"};

}  // namespace

std::span<const AcceptedKey> accepted_keys() { return kAccepted; }
std::span<const RefusedKey> refused_keys() { return kRefused; }
std::span<const RenamedKey> renamed_keys() { return kRenamed; }
std::span<const ChangedDefault> changed_defaults() { return kChanged; }
std::span<const std::string_view> foreign_trackers() { return kTrackers; }

}  // namespace tandem
