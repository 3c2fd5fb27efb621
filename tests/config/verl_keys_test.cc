#include "config/verl_keys.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "config/load.h"

namespace tandem {
namespace {

constexpr KeyClass kH = KeyClass::kHonoured, kA = KeyClass::kAccepted, kR = KeyClass::kRefused;

struct Line {
  const char* text;
  KeyClass expected;
};

// Keys and values that verl's GRPO scripts for gsm8k (qwen3 4b and 8b, fsdp) pass.
const std::vector<Line> kGrpoLines = {
    {"algorithm.adv_estimator=grpo", kH},
    {"algorithm.use_kl_in_reward=False", kH},
    {"algorithm.kl_ctrl.kl_coef=0.001", kH},
    {"data.train_files=['/data/gsm8k/train.parquet','/data/math/train.parquet']", kH},
    {"data.val_files=/data/gsm8k/test.parquet", kH},
    {"data.train_batch_size=1024", kH},
    {"data.max_prompt_length=512", kH},
    {"data.max_response_length=1024", kH},
    {"data.filter_overlong_prompts=True", kH},
    {"data.truncation='error'", kH},
    {"data.return_raw_chat=True", kA},
    {"actor_rollout_ref.model.path=/models/Qwen3-8B", kH},
    {"actor_rollout_ref.model.use_remove_padding=True", kA},
    {"actor_rollout_ref.model.enable_gradient_checkpointing=True", kH},
    {"actor_rollout_ref.actor.strategy=fsdp2", kH},
    {"actor_rollout_ref.actor.optim.lr=1e-6", kH},
    {"actor_rollout_ref.actor.ppo_mini_batch_size=256", kH},
    {"actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2", kH},
    {"actor_rollout_ref.actor.use_dynamic_bsz=True", kH},
    {"actor_rollout_ref.actor.ppo_max_token_len_per_gpu=24576", kH},
    {"actor_rollout_ref.actor.use_kl_loss=True", kH},
    {"actor_rollout_ref.actor.kl_loss_coef=0.001", kH},
    {"actor_rollout_ref.actor.kl_loss_type=low_var_kl", kH},
    {"actor_rollout_ref.actor.entropy_coeff=0", kH},
    {"actor_rollout_ref.actor.fsdp_config.param_offload=False", kA},
    {"actor_rollout_ref.actor.fsdp_config.optimizer_offload=False", kA},
    {"actor_rollout_ref.actor.use_torch_compile=False", kA},
    {"actor_rollout_ref.rollout.name=vllm", kA},
    {"actor_rollout_ref.rollout.mode=async", kA},
    {"actor_rollout_ref.rollout.tensor_model_parallel_size=1", kH},
    {"actor_rollout_ref.rollout.gpu_memory_utilization=0.6", kH},
    {"actor_rollout_ref.rollout.n=5", kH},
    {"actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=8", kA},
    {"actor_rollout_ref.rollout.log_prob_use_dynamic_bsz=True", kA},
    {"actor_rollout_ref.rollout.log_prob_max_token_len_per_gpu=24576", kA},
    {"actor_rollout_ref.rollout.enable_chunked_prefill=False", kH},
    {"actor_rollout_ref.rollout.enforce_eager=False", kA},
    {"actor_rollout_ref.rollout.free_cache_engine=True", kA},
    {"actor_rollout_ref.rollout.checkpoint_engine.update_weights_bucket_megabytes=4096", kA},
    {"actor_rollout_ref.rollout.multi_turn.format=hermes", kA},
    {"actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=4", kA},
    {"actor_rollout_ref.ref.log_prob_use_dynamic_bsz=True", kA},
    {"actor_rollout_ref.ref.log_prob_max_token_len_per_gpu=24576", kA},
    {"actor_rollout_ref.ref.fsdp_config.param_offload=True", kA},
    {"trainer.critic_warmup=0", kH},
    {"trainer.balance_batch=True", kA},
    {"trainer.logger=[\"console\",\"wandb\"]", kH},
    {"trainer.project_name='verl_grpo_example_gsm8k'", kH},
    {"trainer.experiment_name='qwen3_8b_function_rm'", kH},
    {"trainer.val_before_train=False", kH},
    {"trainer.n_gpus_per_node=1", kH},
    {"trainer.nnodes=1", kH},
    {"trainer.save_freq=20", kH},
    {"trainer.test_freq=5", kH},
    {"trainer.total_epochs=15", kH},
    {"trainer.use_v1=True", kA},
    {"+ray_kwargs.ray_init.num_gpus=8", kA},
};

// The further lines of the gsm8k quickstart and of the PPO script.
const std::vector<Line> kPpoLines = {
    {"algorithm.adv_estimator=gae", kH},
    {"algorithm.gamma=1.0", kH},
    {"algorithm.lam=1.0", kH},
    {"critic.enable=True", kA},
    {"critic.strategy=fsdp", kA},
    {"critic.optim.lr=1e-5", kH},
    {"critic.model.path=/models/Qwen2.5-0.5B-Instruct", kH},
    {"critic.model.use_remove_padding=True", kA},
    {"critic.model.enable_gradient_checkpointing=True", kH},
    {"critic.ppo_micro_batch_size_per_gpu=4", kH},
    {"critic.use_dynamic_bsz=True", kH},
    {"critic.ppo_max_token_len_per_gpu=24576", kH},
    {"critic.forward_max_token_len_per_gpu=24576", kA},
    {"critic.fsdp.param_offload=False", kA},
    {"critic.model.fsdp_config.optimizer_offload=False", kA},
    {"critic.cliprange_value=0.5", kH},
    {"critic.grad_clip=1.0", kH},
    {"algorithm.kl_ctrl.type=adaptive", kH},
    {"algorithm.kl_ctrl.horizon=10000", kH},
    {"algorithm.kl_ctrl.target_kl=0.1", kH},
    {"trainer.max_critic_ckpt_to_keep=1", kA},
    {"trainer.default_hdfs_dir=null", kA},
};

// What the larger scripts ask for and this system does not do.
const std::vector<Line> kOtherLines = {
    {"trainer.n_gpus_per_node=8", kH},
    {"trainer.nnodes=4", kR},
    {"actor_rollout_ref.rollout.tensor_model_parallel_size=2", kH},
    {"actor_rollout_ref.actor.megatron.tensor_model_parallel_size=4", kH},
    {"actor_rollout_ref.actor.megatron.pipeline_model_parallel_size=2", kH},
    {"actor_rollout_ref.actor.megatron.context_parallel_size=2", kH},
    {"actor_rollout_ref.actor.megatron.tensor_model_parallel_size=1", kH},
    {"actor_rollout_ref.actor.megatron.use_mbridge=True", kA},
    {"actor_rollout_ref.actor.ulysses_sequence_parallel_size=2", kH},
    {"actor_rollout_ref.actor.fsdp_config.ulysses_sequence_parallel_size=2", kR},
    {"actor_rollout_ref.ref.ulysses_sequence_parallel_size=2", kA},
    {"actor_rollout_ref.model.lora_rank=64", kH},
    {"actor_rollout_ref.model.lora_alpha=32", kH},
    {"actor_rollout_ref.model.target_modules=all-linear", kH},
    {"actor_rollout_ref.model.target_modules=[q_proj,v_proj]", kH},
    {"actor_rollout_ref.model.exclude_modules=[down_proj]", kH},
    {"actor_rollout_ref.model.lora_adapter_path=null", kH},
    {"actor_rollout_ref.model.lora.rank=8", kR},
    {"actor_rollout_ref.model.lora.alpha=32", kA},
    {"actor_rollout_ref.rollout.load_format=safetensors", kA},
    {"actor_rollout_ref.rollout.layered_summon=True", kA},
    {"actor_rollout_ref.rollout.quantization=fp8", kR},
    {"actor_rollout_ref.rollout.quantization=null", kA},
    {"actor_rollout_ref.rollout.multi_turn.enable=True", kR},
    {"actor_rollout_ref.rollout.agent.num_workers=8", kA},
    {"actor_rollout_ref.actor.policy_loss.loss_mode=gspo", kH},
    {"actor_rollout_ref.actor.policy_loss.loss_mode=bypass_mode", kR},
    {"actor_rollout_ref.actor.policy_loss.ppo_kl_coef=0.1", kH},
    {"algorithm.filter_groups.enable=True", kH},
    {"algorithm.filter_groups.metric=acc", kH},
    {"algorithm.filter_groups.max_inflight_gen_batches=2", kA},
    {"algorithm.rollout_correction.rollout_is=token", kH},
    {"algorithm.rollout_correction.loss_type=reinforce", kR},
    {"algorithm.adv_estimator=grpo_vectorized", kR},
    {"critic.ppo_micro_batch_size=4", kR},
    {"critic.model.lora_rank=8", kR},
    {"data.custom_cls.path=my.py", kR},
    {"custom_reward_function.path=my.py", kH},
    {"reward.reward_model.enable=True", kH},
    {"reward_model.enable=False", kH},
    {"reward_model.type=vllm_api", kH},
    {"reward_model.model.path=/rm", kH},
    {"reward.reward_model.rollout.name=vllm", kA},
    {"reward_model.launch_reward_fn_async=True", kA},
    {"reward_model.reward_manager=dapo", kH},
    {"actor_rollout_ref.actor.grad_clip=1.0", kH},
    {"global_profiler.tool=nsys", kA},
};

void expect_classes(const std::vector<Line>& lines) {
  for (const Line& line : lines) {
    const Override change = parse_override(line.text);
    const KeyVerdict verdict = classify_key(rename_key(change.key), change.value);
    EXPECT_EQ(static_cast<int>(verdict.key_class), static_cast<int>(line.expected)) << line.text;
    EXPECT_EQ(verdict.text.empty(), line.expected == kH) << line.text << " lacks a reason";
  }
}

TEST(VerlKeys, ScriptLinesAreClassified) {
  expect_classes(kGrpoLines);
  expect_classes(kPpoLines);
  expect_classes(kOtherLines);
}

std::vector<std::string> texts(const std::vector<Line>& lines) {
  std::vector<std::string> out;
  for (const Line& line : lines)
    if (line.expected != kR) out.emplace_back(line.text);
  return out;
}

TEST(VerlKeys, AGrpoScriptLoadsAndEachIdleKeyIsExplained) {
  const LoadedConfig loaded = parse_config("", "", texts(kGrpoLines));
  EXPECT_EQ(loaded.config.actor_rollout_ref.rollout.n, 5);
  EXPECT_EQ(loaded.config.actor_rollout_ref.actor.ppo_max_token_len_per_gpu, 24576);
  EXPECT_EQ(loaded.config.data.train_files.size(), 2u);
  EXPECT_EQ(loaded.config.trainer.logger, (std::vector<std::string>{"console", "wandb"}));
  EXPECT_EQ(loaded.config.trainer.project_name, "verl_grpo_example_gsm8k");
  const auto idle = std::ranges::count(kGrpoLines, kA, &Line::expected);
  EXPECT_EQ(loaded.notes.size(), static_cast<size_t>(idle));
  const auto explained = [&](const std::string& start) {
    return std::ranges::any_of(loaded.notes, [&](const std::string& note) { return note.starts_with(start); });
  };
  EXPECT_TRUE(explained("actor_rollout_ref.rollout.name=vllm has no effect: one engine"));
  EXPECT_TRUE(loaded.warnings.empty());
}

TEST(VerlKeys, TrackersThatNothingServesAreDroppedWithANote) {
  const std::vector<std::string> words = {"actor_rollout_ref.model.path=m", "trainer.logger=[console,clearml]"};
  const LoadedConfig loaded = parse_config("", "", words);
  EXPECT_EQ(loaded.config.trainer.logger, std::vector<std::string>{"console"});
  ASSERT_EQ(loaded.notes.size(), 1u);
  EXPECT_EQ(loaded.notes[0].find("trainer.logger: clearml has no effect"), 0u);
}

TEST(VerlKeys, ProfiledStepsGoByVerlsNamesToo) {
  const auto steps = [](const std::string& word) {
    const std::vector<std::string> words = {"actor_rollout_ref.model.path=m", word};
    return parse_config("", "", words).config.trainer.profile.steps;
  };
  EXPECT_EQ(steps("global_profiler.steps=[3,4]"), (std::vector<int64_t>{3, 4}));
  EXPECT_EQ(steps("trainer.profile.steps=[2]"), std::vector<int64_t>{2});
  EXPECT_EQ(steps("global_profiler.steps=null"), std::vector<int64_t>{});
  EXPECT_THROW(steps("trainer.profile.steps=[0]"), ConfigError);
}

TEST(VerlKeys, ARefusalSaysWhatToDo) {
  const auto refused = [](const std::string& line) -> std::string {
    const std::vector<std::string> overrides = {line};
    try {
      parse_config("", "", overrides);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(
      refused("algorithm.adv_estimator=rloo_vectorized"),
      "override 'algorithm.adv_estimator=rloo_vectorized': algorithm.adv_estimator=rloo_vectorized is refused: not "
      "there: use algorithm.adv_estimator=optimal_token_baseline, grpo or rloo");
  for (const auto& lines : {kPpoLines, kOtherLines})
    for (const Line& line : lines)
      EXPECT_EQ(refused(line.text).find(" is refused: ") != std::string::npos, line.expected == kR) << line.text;
}

// The forms that verl's own YAML files use: classes, missing values, a quoted n, resolvers that may find nothing.
TEST(VerlKeys, AFileInVerlsFormLoads) {
  constexpr std::string_view kYaml = R"(
defaults: [_self_]
actor_rollout_ref:
  actor:
    _target_: some.python.ActorConfig
    ppo_micro_batch_size: null
    checkpoint: {save_contents: [model, extra], load_contents: "${.save_contents}", async_save: false}
    use_fused_kernels: ${oc.select:actor_rollout_ref.model.use_fused_kernels,false}
    profiler: {tool: "${oc.select:global_profiler.tool,null}", ranks: [], tool_config: {nsys: {discrete: "${no.such}"}}}
    ulysses_sequence_parallel_size: 1
  ref:
    model: null
    ulysses_sequence_parallel_size: ${oc.select:actor_rollout_ref.actor.ulysses_sequence_parallel_size,1}
  rollout:
    name: ???
    'n': 4
    prompt_length: ${oc.select:data.max_prompt_length,512}
    response_length: ${data.max_response_length}
    log_prob_micro_batch_size: null
    engine_kwargs: {vllm: {}, sglang: {}}
    val_kwargs: {'n': 2, temperature: 0}
  model:
    path: ???
    override_config: {}
    lora_rank: 0
data: {max_prompt_length: 96, max_response_length: 64, custom_cls: {path: null, name: null}}
critic: {enable: null, rollout_n: "${oc.select:actor_rollout_ref.rollout.n,1}"}
reward_model: {enable: false, reward_manager: naive, launch_reward_fn_async: false}
custom_reward_function: {path: null, name: compute_score}
trainer: {default_local_dir: "checkpoints/${trainer.project_name}/${trainer.experiment_name}", default_hdfs_dir: null}
)";
  const std::vector<std::string> overrides = {"actor_rollout_ref.model.path=/m", "data.max_response_length=32"};
  const Config config = parse_config(kYaml, "verl.yaml", overrides).config;
  EXPECT_EQ(config.actor_rollout_ref.rollout.n, 4);
  EXPECT_EQ(config.actor_rollout_ref.rollout.val_kwargs.n, 2);
  EXPECT_EQ(config.actor_rollout_ref.rollout.prompt_length, 96);
  EXPECT_EQ(config.actor_rollout_ref.rollout.response_length, 32);
  EXPECT_EQ(config.actor_rollout_ref.actor.checkpoint.load_contents, (std::vector<std::string>{"model", "extra"}));
  EXPECT_EQ(config.trainer.default_local_dir, "checkpoints/verl_examples/gsm8k");
  EXPECT_THROW(parse_config(kYaml, "verl.yaml", {}), ConfigError);  // no model
}

TEST(VerlKeys, CriticFollowsTheEstimator) {
  const auto text = [](std::vector<std::string> overrides) -> std::string {
    overrides.emplace_back("actor_rollout_ref.model.path=/m");
    try {
      parse_config("", "", overrides);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(text({"critic.enable=True"}), "");
  EXPECT_EQ(text({"critic.enable=False", "algorithm.adv_estimator=grpo"}), "");
  EXPECT_NE(text({"critic.enable=False"}).find("critic.enable=False does not go with"), std::string::npos);
  EXPECT_NE(text({"critic.enable=True", "algorithm.adv_estimator=rloo"}).find("adv_estimator=rloo"), std::string::npos);
}

TEST(VerlKeys, ALossThatAveragesWithinTheResponseSaysSo) {
  const auto mode = [](std::vector<std::string> overrides) {
    overrides.emplace_back("actor_rollout_ref.model.path=/m");
    return parse_config("", "", overrides).config.actor_rollout_ref.actor.loss_agg_mode;
  };
  EXPECT_EQ(mode({}), "token-mean");
  EXPECT_EQ(mode({"actor_rollout_ref.actor.policy_loss.loss_mode=gspo"}), "seq-mean-token-mean");
  EXPECT_EQ(mode({"actor_rollout_ref.actor.policy_loss.loss_mode=cispo"}), "token-mean");
  EXPECT_THROW(
      mode({"actor_rollout_ref.actor.policy_loss.loss_mode=gspo", "actor_rollout_ref.actor.loss_agg_mode=token-mean"}),
      ConfigError);
}

TEST(VerlKeys, OldNamesReachTheirSuccessors) {
  const std::vector<std::string> overrides = {
      "actor_rollout_ref.model.path=/m",
      "custom_reward_function.path=my.py",
      "actor_rollout_ref.actor.grad_clip=0.5",
      "actor_rollout_ref.actor.optim.warmup_style=cosine",
      "reward_model.reward_manager=dapo",
      "reward_model={enable: false, type: vllm_api, endpoint: 'http://judge:8000/classify'}"};
  const Config config = parse_config("custom_reward_function: {name: f}", "", overrides).config;
  EXPECT_EQ(config.reward.custom_reward_function.path, "my.py");
  EXPECT_EQ(config.reward.custom_reward_function.name, "f");
  EXPECT_EQ(config.actor_rollout_ref.actor.optim.clip_grad, 0.5);
  EXPECT_EQ(config.actor_rollout_ref.actor.optim.lr_scheduler_type, "cosine");
  EXPECT_EQ(config.reward.reward_manager.name, "dapo");
  EXPECT_EQ(config.reward.reward_model.type, "vllm_api");
  EXPECT_EQ(config.reward.reward_model.endpoint, "http://judge:8000/classify");
}

TEST(VerlKeys, ManyIdleKeysOfOneRowShareALine) {
  const std::vector<std::string> overrides = {"actor_rollout_ref.model.path=/m"};
  const LoadedConfig loaded = parse_config("critic: {fsdp: {a: 1, b: 2, c: {d: 3, e: null, f: 4}}}", "", overrides);
  ASSERT_EQ(loaded.notes.size(), 1u);
  EXPECT_TRUE(loaded.notes[0].starts_with("critic.fsdp.* (4 keys) has no effect")) << loaded.notes[0];
}

TEST(VerlKeys, TheListsDoNotContradictEachOther) {
  std::set<std::string_view> patterns;
  for (const AcceptedKey& row : accepted_keys()) {
    EXPECT_TRUE(patterns.insert(row.pattern).second) << row.pattern << " stands twice";
    EXPECT_NE(static_cast<int>(classify_key(row.pattern, plain_value("x", "")).key_class), static_cast<int>(kH))
        << row.pattern << " is honoured";
  }
  for (const RefusedKey& row : refused_keys())
    EXPECT_FALSE(patterns.contains(row.pattern)) << row.pattern << " is accepted too";
  for (const ChangedDefault& row : changed_defaults())
    EXPECT_EQ(static_cast<int>(classify_key(row.key, Value{}).key_class), static_cast<int>(kH)) << row.key;
}

TEST(VerlKeys, Patterns) {
  EXPECT_TRUE(matches("a.b", "a.b"));
  EXPECT_FALSE(matches("a.b", "a.bc"));
  EXPECT_TRUE(matches("a.*", "a.b.c"));
  EXPECT_TRUE(matches("a.*", "a"));
  EXPECT_FALSE(matches("a.*", "ab"));
  EXPECT_TRUE(matches("*._target_", "x.y._target_"));
  EXPECT_TRUE(matches("a.*.c.*_size", "a.b.c.x_size"));
  EXPECT_FALSE(matches("a.*.c.*_size", "a.b.d.x_size"));
}

}  // namespace
}  // namespace tandem
