#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <source_location>

#include "base/error.h"
#include "config/load.h"

namespace tandem {
namespace {

Config valid() {
  Config config;
  config.actor_rollout_ref.model.path = "/models/tiny";
  config.actor_rollout_ref.rollout.n = 8;
  config.algorithm.adv_estimator = "grpo";
  return config;
}

// The change must be refused by an error that starts with the key.
void expect_refused(const std::string& key, const std::function<void(Config&)>& change,
                    std::source_location at = std::source_location::current()) {
  Config config = valid();
  change(config);
  try {
    validate(config);
    ADD_FAILURE() << "line " << at.line() << ": " << key << " was not refused";
  } catch (const ConfigError& error) {
    EXPECT_EQ(std::string(error.what()).rfind(key + "=", 0), 0u) << "line " << at.line() << ": " << error.what();
  }
}

void expect_fine(const std::function<void(Config&)>& change) {
  Config config = valid();
  change(config);
  EXPECT_NO_THROW(validate(config));
}

TEST(Validate, AValidConfigurationHasNoWarnings) { EXPECT_TRUE(validate(valid()).empty()); }

TEST(Validate, Sampling) {
  const std::string at = "actor_rollout_ref.rollout.";
  for (const double bad : {-1.0, std::nan(""), double{INFINITY}}) {
    expect_refused(at + "temperature", [=](Config& c) { c.actor_rollout_ref.rollout.temperature = bad; });
    expect_refused(at + "val_kwargs.temperature",
                   [=](Config& c) { c.actor_rollout_ref.rollout.val_kwargs.temperature = bad; });
  }
  for (const double good : {0.0, 1e-6, 1e-4, 2.0})
    expect_fine([=](Config& c) { c.actor_rollout_ref.rollout.temperature = good; });
  for (const double bad : {0.0, -0.5, 1.5, std::nan("")})
    expect_refused(at + "top_p", [=](Config& c) { c.actor_rollout_ref.rollout.top_p = bad; });
  for (const int64_t bad : {0, -2})
    expect_refused(at + "top_k", [=](Config& c) { c.actor_rollout_ref.rollout.top_k = bad; });
  expect_refused(at + "n", [](Config& c) { c.actor_rollout_ref.rollout.n = 0; });
  expect_refused(at + "min_p", [](Config& c) { c.actor_rollout_ref.rollout.min_p = 1.5; });
  expect_refused(at + "val_kwargs.n", [](Config& c) { c.actor_rollout_ref.rollout.val_kwargs.n = 0; });
}

TEST(Validate, Ranks) {
  const std::string actor = "actor_rollout_ref.actor.";
  const auto two = [](Config& c) -> ActorConfig& {
    c.trainer.n_gpus_per_node = 2;
    return c.actor_rollout_ref.actor;
  };
  expect_fine([=](Config& c) { two(c).strategy = "fsdp2"; });
  expect_fine([=](Config& c) { two(c).fsdp_config.fsdp_size = 1; });
  expect_fine([](Config& c) { c.actor_rollout_ref.actor.strategy = "veomni"; });  // alone there is nothing to choose
  expect_refused(actor + "strategy", [=](Config& c) { two(c).strategy = "veomni"; });
  expect_refused(actor + "fsdp_config.fsdp_size", [=](Config& c) { two(c).fsdp_config.fsdp_size = 3; });
  expect_refused(actor + "fsdp_config.fsdp_size",
                 [](Config& c) { c.actor_rollout_ref.actor.fsdp_config.fsdp_size = 0; });
  expect_fine([=](Config& c) { two(c).policy_loss.loss_mode = "kl_cov"; });
  expect_fine([=](Config& c) { two(c), c.algorithm.adv_estimator = "gae"; });
  expect_fine([=](Config& c) {
    two(c).strategy = "megatron";
    c.actor_rollout_ref.actor.megatron.tensor_model_parallel_size = 2;
    c.actor_rollout_ref.rollout.tensor_model_parallel_size = 2;
  });
  expect_refused(actor + "megatron.tensor_model_parallel_size", [=](Config& c) {
    two(c).strategy = "megatron";
    c.actor_rollout_ref.actor.megatron.tensor_model_parallel_size = 3;
  });
  expect_refused(actor + "megatron.tensor_model_parallel_size",
                 [=](Config& c) { two(c).megatron.tensor_model_parallel_size = 2; });
  expect_fine([=](Config& c) {
    two(c).strategy = "megatron";
    c.actor_rollout_ref.actor.megatron.pipeline_model_parallel_size = 2;
  });
  expect_refused(actor + "policy_loss.loss_mode", [=](Config& c) {
    two(c).strategy = "megatron";
    c.actor_rollout_ref.actor.megatron.pipeline_model_parallel_size = 2;
    c.actor_rollout_ref.actor.policy_loss.loss_mode = "clip_cov";
  });
  expect_refused(actor + "megatron.pipeline_model_parallel_size",
                 [=](Config& c) { two(c).megatron.pipeline_model_parallel_size = 2; });
  const auto megatron = [=](Config& c, int64_t ranks, int64_t tp, int64_t pp, int64_t cp) {
    two(c).strategy = "megatron";
    c.trainer.n_gpus_per_node = ranks, c.actor_rollout_ref.rollout.tensor_model_parallel_size = tp;
    MegatronConfig& sizes = c.actor_rollout_ref.actor.megatron;
    sizes.tensor_model_parallel_size = tp, sizes.pipeline_model_parallel_size = pp, sizes.context_parallel_size = cp;
  };
  expect_fine([=](Config& c) { megatron(c, 4, 2, 2, 1); });
  expect_fine([=](Config& c) { megatron(c, 4, 1, 2, 1); });
  expect_fine([=](Config& c) { megatron(c, 8, 2, 2, 2); });
  expect_refused(actor + "megatron.pipeline_model_parallel_size", [=](Config& c) { megatron(c, 4, 2, 4, 1); });
  expect_refused(actor + "megatron.context_parallel_size", [=](Config& c) { megatron(c, 4, 2, 2, 2); });
  expect_fine([=](Config& c) {
    megatron(c, 4, 1, 2, 1);
    c.actor_rollout_ref.actor.megatron.virtual_pipeline_model_parallel_size = 2;
  });
  expect_refused(actor + "megatron.virtual_pipeline_model_parallel_size", [=](Config& c) {
    megatron(c, 4, 2, 1, 1);
    c.actor_rollout_ref.actor.megatron.virtual_pipeline_model_parallel_size = 2;
  });
  expect_fine([=](Config& c) { two(c).ulysses_sequence_parallel_size = 2; });
  expect_refused(actor + "ulysses_sequence_parallel_size",
                 [=](Config& c) { two(c).ulysses_sequence_parallel_size = 4; });
  expect_refused(actor + "ulysses_sequence_parallel_size", [=](Config& c) {
    megatron(c, 2, 1, 1, 1);
    c.actor_rollout_ref.actor.ulysses_sequence_parallel_size = 2;
  });
  expect_refused(actor + "fsdp_config.fsdp_size", [=](Config& c) {
    two(c).ulysses_sequence_parallel_size = 2;
    c.actor_rollout_ref.actor.fsdp_config.fsdp_size = 1;
  });
  expect_refused("actor_rollout_ref.rollout.tensor_model_parallel_size",
                 [=](Config& c) { two(c), c.actor_rollout_ref.rollout.tensor_model_parallel_size = 2; });
}

TEST(Validate, Communication) {
  const std::string at = "trainer.communication.";
  expect_fine([](Config& c) { c.trainer.communication.actor.mlp = "tree"; });
  expect_refused(at + "actor.mlp", [](Config& c) { c.trainer.communication.actor.mlp = "star"; });
  expect_refused(at + "ranks_per_node", [](Config& c) { c.trainer.communication.ranks_per_node = -1; });
  expect_refused(at + "cross_node_share", [](Config& c) { c.trainer.communication.cross_node_share = 1.5; });
  expect_refused(at + "cross_node_share_back", [](Config& c) { c.trainer.communication.cross_node_share = 0.2; });
  expect_refused(at + "switched_models", [](Config& c) { c.trainer.communication.switched_models = {"reference"}; });
}

TEST(Validate, StopsAndLengths) {
  const std::string at = "actor_rollout_ref.rollout.";
  expect_refused(at + "stop", [](Config& c) { c.actor_rollout_ref.rollout.stop = {""}; });
  expect_refused(at + "stop_token_ids", [](Config& c) { c.actor_rollout_ref.rollout.stop_token_ids = {-1}; });
  expect_refused(at + "min_tokens", [](Config& c) { c.actor_rollout_ref.rollout.min_tokens = 513; });
  expect_fine([](Config& c) { c.actor_rollout_ref.rollout.min_tokens = 512; });
  expect_refused(at + "max_model_len", [](Config& c) { c.actor_rollout_ref.rollout.max_model_len = 1023; });
  expect_fine([](Config& c) { c.actor_rollout_ref.rollout.max_model_len = 1024; });
  expect_refused(at + "max_num_batched_tokens", [](Config& c) {
    c.actor_rollout_ref.rollout.enable_chunked_prefill = false;
    c.actor_rollout_ref.rollout.max_num_batched_tokens = 1023;
  });
  expect_refused(at + "prompt_length", [](Config& c) { c.actor_rollout_ref.rollout.prompt_length = 100; });
  expect_refused("data.max_prompt_length", [](Config& c) { c.data.max_prompt_length = 0; });
  expect_refused("data.max_response_length", [](Config& c) { c.data.max_response_length = -1; });
}

TEST(Validate, Data) {
  expect_refused("data.truncation", [](Config& c) { c.data.truncation = "drop"; });
  expect_refused("data.train_files", [](Config& c) { c.data.train_files = {}; });
  expect_refused("data.train_files", [](Config& c) { c.data.train_files = {"a", ""}; });
  expect_refused("data.train_batch_size", [](Config& c) { c.data.train_batch_size = 0; });
  expect_refused("data.train_max_samples", [](Config& c) { c.data.train_max_samples = 0; });
  expect_refused("data.val_files", [](Config& c) {
    c.trainer.val_only = true;
    c.data.val_files = {};
  });
}

TEST(Validate, Actor) {
  const std::string at = "actor_rollout_ref.actor.";
  expect_refused("actor_rollout_ref.model.path", [](Config& c) { c.actor_rollout_ref.model.path = ""; });
  expect_refused(at + "ppo_mini_batch_size", [](Config& c) { c.data.train_batch_size = 255; });
  expect_refused(at + "use_dynamic_bsz", [](Config& c) { c.actor_rollout_ref.actor.use_dynamic_bsz = false; });
  expect_refused(at + "clip_ratio_c", [](Config& c) { c.actor_rollout_ref.actor.clip_ratio_c = 1.0; });
  expect_refused(at + "clip_ratio", [](Config& c) { c.actor_rollout_ref.actor.clip_ratio = 1.1; });
  expect_refused(at + "clip_ratio_high", [](Config& c) { c.actor_rollout_ref.actor.clip_ratio_high = NAN; });
  expect_refused(at + "loss_agg_mode", [](Config& c) { c.actor_rollout_ref.actor.loss_agg_mode = "mean"; });
  expect_refused(at + "optim.lr", [](Config& c) { c.actor_rollout_ref.actor.optim.lr = NAN; });
  expect_refused(at + "optim.betas", [](Config& c) { c.actor_rollout_ref.actor.optim.betas = {0.9}; });
  expect_refused(at + "optim.betas", [](Config& c) { c.actor_rollout_ref.actor.optim.betas = {0.9, 1.0}; });
  expect_refused(at + "optim.clip_grad", [](Config& c) { c.actor_rollout_ref.actor.optim.clip_grad = 0; });
  expect_refused(at + "checkpoint.save_contents",
                 [](Config& c) { c.actor_rollout_ref.actor.checkpoint.save_contents = {"weights"}; });
}

TEST(Validate, OverlongPenalty) {
  const std::string at = "reward.reward_kwargs.overlong_buffer_cfg.";
  const auto with = [](bool enable, int64_t len, const std::string& manager) {
    return [=](Config& config) {
      config.data.max_response_length = 100;
      config.reward.reward_manager.name = manager;
      config.reward.reward_kwargs.overlong_buffer_cfg = {.enable = enable, .len = len};
    };
  };
  expect_fine(with(false, 0, "naive"));
  expect_fine(with(false, 5000, "naive"));
  expect_fine(with(true, 20, "dapo"));
  expect_fine(with(true, 99, "dapo"));
  expect_refused(at + "len", with(true, 100, "dapo"));
  expect_refused(at + "len", with(true, 0, "dapo"));
  expect_refused(at + "enable", with(true, 20, "naive"));
}

TEST(Validate, RewardServer) {
  const auto with = [](auto change) {
    return [change](Config& c) {
      c.reward.reward_model.type = "vllm_api";
      c.reward.reward_model.endpoint = "http://judge:8000/classify";
      change(c.reward);
    };
  };
  const std::string at = "reward.reward_model.";
  expect_fine(with([](RewardConfig&) {}));
  expect_fine([](Config& c) { c.reward.reward_model.enable = false; });
  expect_fine(with([](RewardConfig& r) { r.rule = "gsm8k", r.reward_model.enable = false; }));
  expect_refused(at + "enable", [](Config& c) { c.reward.reward_model.enable = true; });
  expect_refused(at + "endpoint", with([](RewardConfig& r) { r.reward_model.endpoint.reset(); }));
  expect_refused(at + "type", with([](RewardConfig& r) { r.rule = "gsm8k"; }));
  expect_refused(at + "type", with([](RewardConfig& r) { r.custom_reward_function.path = "my.py"; }));
  expect_refused(at + "timeout", with([](RewardConfig& r) { r.reward_model.timeout = 0; }));
  expect_refused(at + "max_retries", with([](RewardConfig& r) { r.reward_model.max_retries = -1; }));
  expect_refused(at + "max_concurrent", with([](RewardConfig& r) { r.reward_model.max_concurrent = 0; }));
}

TEST(Validate, RewardAndTrainer) {
  expect_refused("reward.num_workers", [](Config& c) { c.reward.num_workers = 0; });
  expect_refused("reward.timeout", [](Config& c) { c.reward.timeout = 0; });
  expect_refused("reward.rule", [](Config& c) {
    c.reward.rule = "gsm8k";
    c.reward.custom_reward_function.path = "my.py";
  });
  expect_refused("trainer.total_epochs", [](Config& c) { c.trainer.total_epochs = 0; });
  expect_refused("trainer.save_freq", [](Config& c) { c.trainer.save_freq = -2; });
  expect_refused("trainer.resume_from_path", [](Config& c) { c.trainer.resume_mode = "resume_path"; });
  expect_refused("trainer.device", [](Config& c) { c.trainer.device = "tpu"; });
  expect_refused("numerics.mode", [](Config& c) { c.numerics.mode = "slow"; });
}

TEST(Validate, Algorithm) {
  const std::string at = "algorithm.";
  const auto with = [](const char* estimator, auto change) {
    return [=](Config& c) {
      c.algorithm.adv_estimator = estimator;
      change(c);
    };
  };
  expect_refused(at + "gamma", with("grpo", [](Config& c) { c.algorithm.gamma = 0.9; }));
  expect_refused(at + "lam", with("reinforce_plus_plus", [](Config& c) { c.algorithm.lam = 0.9; }));
  expect_fine(with("gae", [](Config& c) { c.algorithm.gamma = c.algorithm.lam = 0.9; }));
  expect_fine(with("reinforce_plus_plus", [](Config& c) { c.algorithm.gamma = 0.9; }));
  expect_refused("trainer.critic_warmup", with("grpo", [](Config& c) { c.trainer.critic_warmup = 1; }));
  expect_fine(with("gae", [](Config& c) { c.trainer.critic_warmup = 1; }));
  expect_refused(at + "gdpo_reward_keys", with("gdpo", [](Config&) {}));
  expect_refused(at + "gdpo_reward_weights", with("gdpo", [](Config& c) {
                   c.algorithm.gdpo_reward_keys = {"a", "b"};
                   c.algorithm.gdpo_reward_weights = {1};
                 }));
  expect_refused(at + "use_kl_in_reward", with("gdpo", [](Config& c) {
                   c.algorithm.gdpo_reward_keys = {"a"};
                   c.algorithm.use_kl_in_reward = true;
                 }));
  expect_refused("actor_rollout_ref.rollout.n",
                 with("grpo_passk", [](Config& c) { c.actor_rollout_ref.rollout.n = 1; }));
  expect_refused(at + "kl_ctrl.target_kl", [](Config& c) { c.algorithm.kl_ctrl.target_kl = 0; });
  expect_refused(at + "kl_ctrl.horizon", [](Config& c) { c.algorithm.kl_ctrl.horizon = 0; });
  expect_refused(at + "adv_estimator", with("ppo", [](Config&) {}));
}

TEST(Validate, DynamicSamplingAndCorrection) {
  const std::string at = "algorithm.";
  expect_refused(at + "filter_groups.enable", [](Config& c) {
    c.algorithm.filter_groups.enable = true;
    c.actor_rollout_ref.rollout.n = 1;
  });
  expect_refused(at + "filter_groups.metric", [](Config& c) {
    c.algorithm.filter_groups = {true, "seq_final_reward", 0};
    c.algorithm.use_kl_in_reward = true;
  });
  expect_refused(at + "filter_groups.max_num_gen_batches",
                 [](Config& c) { c.algorithm.filter_groups.max_num_gen_batches = -1; });
  expect_refused(at + "rollout_correction.bypass_mode", [](Config& c) {
    c.algorithm.rollout_correction.bypass_mode = true;
    c.algorithm.rollout_correction.rollout_is = "token";
  });
  expect_refused(at + "rollout_correction.rollout_rs_threshold",
                 [](Config& c) { c.algorithm.rollout_correction.rollout_rs = "token_k1"; });
}

TEST(Validate, PolicyLoss) {
  const std::string at = "actor_rollout_ref.actor.";
  const auto with = [](const char* loss, auto change) {
    return [=](Config& c) {
      c.actor_rollout_ref.actor.policy_loss.loss_mode = loss;
      change(c.actor_rollout_ref.actor);
    };
  };
  expect_refused(at + "policy_loss.dro_beta", with("dro", [](ActorConfig&) {}));
  expect_fine(with("dro", [](ActorConfig& a) { a.policy_loss.dro_beta = 0.5; }));
  for (const char* loss : {"gspo", "sapo", "geo_mean"}) {
    expect_refused(at + "loss_agg_mode", with(loss, [](ActorConfig&) {}));
    expect_fine(with(loss, [](ActorConfig& a) { a.loss_agg_mode = "seq-mean-token-mean"; }));
  }
  expect_refused(at + "policy_loss.clip_cov_lb",
                 with("clip_cov", [](ActorConfig& a) { a.policy_loss.clip_cov_lb = 9; }));
  expect_refused(at + "policy_loss.kl_cov_ratio",
                 with("kl_cov", [](ActorConfig& a) { a.policy_loss.kl_cov_ratio = 2; }));
  expect_refused(at + "tau_neg", [](Config& c) { c.actor_rollout_ref.actor.tau_neg = 0; });
  expect_refused(at + "policy_loss.loss_mode", with("ppo", [](ActorConfig&) {}));
}

TEST(Validate, Critic) {
  expect_refused("critic.ppo_mini_batch_size", [](Config& c) { c.critic.ppo_mini_batch_size = 2000; });
  expect_refused("critic.cliprange_value", [](Config& c) { c.critic.cliprange_value = 0; });
  expect_refused("critic.optim.lr", [](Config& c) { c.critic.optim.lr = -1; });
  expect_refused("critic.use_dynamic_bsz", [](Config& c) { c.critic.use_dynamic_bsz = false; });
  expect_refused("critic.model.path", [](Config& c) { c.critic.model.path = ""; });
}

TEST(Validate, ErrorsOfLoadingNameThePlace) {
  const std::vector<std::string> overrides = {"actor_rollout_ref.model.path=/m", "actor_rollout_ref.rollout.top_p=0"};
  try {
    parse_config("", "run.yaml", overrides);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_STREQ(
        error.what(),
        "override 'actor_rollout_ref.rollout.top_p=0': actor_rollout_ref.rollout.top_p=0.0: must be above 0 and "
        "at most 1; 1 keeps all");
  }
}

TEST(Validate, Warnings) {
  const auto warnings = [](const std::function<void(Config&)>& change) {
    Config config = valid();
    change(config);
    return validate(config);
  };
  const auto greedy = warnings([](Config& c) { c.actor_rollout_ref.rollout.temperature = 0; });
  ASSERT_EQ(greedy.size(), 1u);
  EXPECT_NE(greedy[0].find("every advantage is zero"), std::string::npos);
  EXPECT_EQ(warnings([](Config& c) { c.actor_rollout_ref.rollout.do_sample = false; }).size(), 1u);
  EXPECT_EQ(warnings([](Config& c) { c.actor_rollout_ref.rollout.n = 1; }).size(), 1u);
  EXPECT_EQ(warnings([](Config& c) { c.data.train_batch_size = 300; }).size(), 1u);
  EXPECT_EQ(warnings([](Config& c) { c.trainer.communication.critic.mlp = "tree"; }).size(), 1u);
}

TEST(DerivedSizes, CountPromptsAndSamples) {
  Config config = valid();
  config.data.train_batch_size = 100;
  config.actor_rollout_ref.actor.ppo_mini_batch_size = 32;
  config.actor_rollout_ref.actor.ppo_epochs = 2;
  config.trainer.total_epochs = 3;
  const DerivedSizes sizes = derived_sizes(config);
  EXPECT_EQ(sizes.samples_per_step, 800);
  EXPECT_EQ(sizes.mini_batches, 4);  // 32 + 32 + 32 + 4
  EXPECT_EQ(sizes.samples_per_mini_batch, 256);
  EXPECT_EQ(sizes.optimizer_steps_per_step, 8);
  EXPECT_EQ(sizes.model_length, 1024);
  EXPECT_EQ(sizes.max_tokens_per_step, 800 * 1024);
  EXPECT_EQ(sizes.clip_low, 0.2);
  EXPECT_EQ(total_steps(config, 250), 6);  // two whole batches an epoch
  config.trainer.total_training_steps = 5;
  EXPECT_EQ(total_steps(config, 250), 5);
  EXPECT_EQ(micro_batch_token_limit(config, false), 4096);
  EXPECT_EQ(micro_batch_token_limit(config, true), 16384);
  config.actor_rollout_ref.actor.ppo_max_token_len_per_gpu = 100;  // less than one sample
  EXPECT_EQ(micro_batch_token_limit(config, true), 1024);
}

}  // namespace
}  // namespace tandem
