#include "config/load.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <source_location>

#include "base/error.h"

namespace tandem {
namespace {

using Overrides = std::vector<std::string>;

const std::string kModel = "actor_rollout_ref.model.path=/models/tiny";

LoadedConfig load_all(std::string_view yaml, Overrides overrides) {
  overrides.insert(overrides.begin(), kModel);
  return parse_config(yaml, "run.yaml", overrides);
}
Config load(Overrides overrides, std::string_view yaml = "") { return load_all(yaml, std::move(overrides)).config; }

std::string error_of(Overrides overrides, std::string_view yaml = "") {
  try {
    load_all(yaml, std::move(overrides));
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

void expect_has(const std::string& text, const std::string& part,
                std::source_location at = std::source_location::current()) {
  EXPECT_NE(text.find(part), std::string::npos) << "line " << at.line() << ": '" << text << "' lacks '" << part << "'";
}

TEST(Load, DefaultsAreThoseOfTheStructs) {
  const Config config = load({});
  EXPECT_EQ(config.data.train_batch_size, 1024);
  EXPECT_EQ(config.actor_rollout_ref.rollout.temperature, 1.0);
  EXPECT_EQ(config.algorithm.adv_estimator, "gae");
  EXPECT_EQ(config.actor_rollout_ref.actor.optim.betas, (std::vector<double>{0.9, 0.999}));
  EXPECT_EQ(config.trainer.default_local_dir, "runs/gsm8k/checkpoints");
}

TEST(Load, LaterFilesAndThenOverridesWin) {
  const std::string folder = testing::TempDir();
  std::ofstream(folder + "/a.yaml") << "data: {seed: 1, max_prompt_length: 11}\ntrainer:\n  total_epochs: 3\n";
  std::ofstream(folder + "/b.yaml") << "data:\n  seed: 2\n  train_batch_size: 512\n";
  const Overrides overrides = {kModel, "data.train_batch_size=256", "data.train_batch_size=300"};
  const Config config = load_config({folder + "/a.yaml", folder + "/b.yaml"}, overrides);
  EXPECT_EQ(config.data.max_prompt_length, 11);
  EXPECT_EQ(config.data.seed, 2);
  EXPECT_EQ(config.data.train_batch_size, 300);
  EXPECT_EQ(config.trainer.total_epochs, 3);
  EXPECT_THROW(load_config({folder + "/absent.yaml"}, overrides), IoError);
}

TEST(Load, AllFormsOfOverride) {
  EXPECT_EQ(load({"data.seed=7"}).data.seed, 7);
  EXPECT_EQ(load({"+data.seed=7"}).data.seed, 7);
  EXPECT_EQ(load({"++data.seed=7"}).data.seed, 7);
  EXPECT_EQ(load({"data.seed=7", "~data.seed"}).data.seed, std::nullopt);
  EXPECT_EQ(load({"~data"}, "data: {train_batch_size: 300}").data.train_batch_size, 1024);
  EXPECT_EQ(load({"data.seed=null"}, "data: {seed: 3}").data.seed, std::nullopt);
  EXPECT_EQ(load({"data.seed=None"}, "data: {seed: 3}").data.seed, std::nullopt);
  EXPECT_EQ(load({"data.max_prompt_length=1_000"}).data.max_prompt_length, 1000);
  EXPECT_EQ(load({"actor_rollout_ref.actor.optim.lr=1e-6"}).actor_rollout_ref.actor.optim.lr, 1e-6);
  EXPECT_EQ(load({"actor_rollout_ref.actor.optim.lr=.5"}).actor_rollout_ref.actor.optim.lr, 0.5);
  EXPECT_TRUE(load({"trainer.val_only=True"}).trainer.val_only);
  EXPECT_FALSE(load({"data.shuffle=false"}).data.shuffle);
  EXPECT_EQ(load({"trainer.experiment_name=two words"}).trainer.experiment_name, "two words");
  EXPECT_EQ(load({"trainer.experiment_name='a, b'"}).trainer.experiment_name, "a, b");
  EXPECT_EQ(load({R"(trainer.experiment_name="it's \"x\"")"}).trainer.experiment_name, "it's \"x\"");
  EXPECT_EQ(load({"trainer.experiment_name=001"}).trainer.experiment_name, "001");
  EXPECT_EQ(load({"trainer.rollout_data_dir="}).trainer.rollout_data_dir, std::nullopt);
}

TEST(Load, Lists) {
  using Files = std::vector<std::string>;
  EXPECT_EQ(load({"data.train_files=[a,b]"}).data.train_files, (Files{"a", "b"}));
  EXPECT_EQ(load({"data.train_files=['a, b' , \"c\"]"}).data.train_files, (Files{"a, b", "c"}));
  EXPECT_EQ(load({R"(data.train_files="['a','b']")"}).data.train_files, (Files{"a", "b"}));
  EXPECT_EQ(load({"data.train_files=a.parquet"}).data.train_files, (Files{"a.parquet"}));
  EXPECT_EQ(load({"data.val_files=[]"}).data.val_files, Files{});
  EXPECT_EQ(load({"actor_rollout_ref.rollout.stop_token_ids=[1,2]"}).actor_rollout_ref.rollout.stop_token_ids,
            (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(load({"actor_rollout_ref.actor.optim.betas=[0.8,0.95]"}).actor_rollout_ref.actor.optim.betas,
            (std::vector<double>{0.8, 0.95}));
}

TEST(Load, DictsStayJsonAndMerge) {
  EXPECT_EQ(load({}).data.apply_chat_template_kwargs.text, "{}");
  EXPECT_EQ(load({"+data.apply_chat_template_kwargs.enable_thinking=False"}).data.apply_chat_template_kwargs.text,
            R"({"enable_thinking":false})");
  EXPECT_EQ(load({"data.apply_chat_template_kwargs={b: [1, x, null]}"}, "data: {apply_chat_template_kwargs: {a: '1'}}")
                .data.apply_chat_template_kwargs.text,
            R"({"a":"1","b":[1,"x",null]})");
  EXPECT_EQ(load({"reward.custom_reward_function.reward_kwargs={a: {b: 1e-3}}"})
                .reward.custom_reward_function.reward_kwargs.text,
            R"({"a":{"b":0.001}})");
  EXPECT_EQ(load({"algorithm.kl_ctrl={type: fixed, kl_coef: 0.5}"}).algorithm.kl_ctrl.kl_coef, 0.5);
  expect_has(error_of({"data.apply_chat_template_kwargs=3"}), "expected a dict");
}

TEST(Load, Interpolation) {
  ::setenv("TANDEM_CONFIG_TEST", "/data", 1);
  ::unsetenv("TANDEM_CONFIG_ABSENT");
  EXPECT_EQ(load({"data.train_files=${oc.env:TANDEM_CONFIG_TEST}/x"}).data.train_files[0], "/data/x");
  EXPECT_EQ(load({"data.max_prompt_length=${oc.env:TANDEM_CONFIG_ABSENT,64}"}).data.max_prompt_length, 64);
  EXPECT_EQ(load({"data.seed=${oc.env:TANDEM_CONFIG_ABSENT,${oc.env:TANDEM_CONFIG_ABSENT2,9}}"}).data.seed, 9);
  expect_has(error_of({"data.seed=${oc.env:TANDEM_CONFIG_ABSENT}"}), "TANDEM_CONFIG_ABSENT is not set");
  EXPECT_EQ(load({"data.val_batch_size=${data.train_batch_size}", "data.train_batch_size=300"}).data.val_batch_size,
            300);
  EXPECT_EQ(
      load({"trainer.default_local_dir=ckpt/${trainer.project_name}/${.experiment_name}"}).trainer.default_local_dir,
      "ckpt/verl_examples/gsm8k");
  EXPECT_EQ(load({"trainer.experiment_name=a"}).trainer.default_local_dir, "runs/a/checkpoints");
  const auto checkpoint = load({},
                               "actor_rollout_ref: {actor: {checkpoint: {save_contents: [model], load_contents: "
                               "'${.save_contents}'}}}")
                              .actor_rollout_ref.actor.checkpoint;
  EXPECT_EQ(checkpoint.load_contents, std::vector<std::string>{"model"});
  EXPECT_EQ(load({"data.seed=${oc.select:no.such.key,5}"}).data.seed, 5);
  EXPECT_EQ(load({"trainer.experiment_name=\\${x}"}).trainer.experiment_name, "${x}");
  expect_has(error_of({"data.seed=${data.sed}"}), "no key data.sed");
  expect_has(error_of({"data.seed=${data.val_batch_size}", "data.val_batch_size=${data.seed}"}), "circles");
  expect_has(error_of({"data.seed=${foo:1}"}), "${foo:...} is not known");
  expect_has(error_of({"trainer.experiment_name=${trainer"}), "closing }");
}

TEST(Load, UnknownKeyNamesTheNearest) {
  expect_has(error_of({"actor_rollout_ref.rollout.temprature=1"}), "is actor_rollout_ref.rollout.temperature");
  expect_has(error_of({"temperature=1"}), "is actor_rollout_ref.rollout.temperature");
  expect_has(error_of({"trainer.train_batch_size=8"}), "is data.train_batch_size");
  expect_has(error_of({"algorithm.adv_estimatr=grpo"}), "is algorithm.adv_estimator");
  expect_has(error_of({}, "data:\n  train_batch: 8\n"), "run.yaml:2: unknown key 'data.train_batch'");
  expect_has(error_of({"~data.no"}), "unknown key 'data.no'");
}

TEST(Load, WrongTypesNamePlaceKeyValueAndWhatIsExpected) {
  EXPECT_EQ(error_of({"data.seed=abc"}), "override 'data.seed=abc': data.seed=abc: expected a whole number or null");
  EXPECT_EQ(error_of({}, "data:\n  shuffle: 3\n"), "run.yaml:2: data.shuffle=3: expected true or false");
  expect_has(error_of({"data.max_prompt_length=1.5"}), "expected a whole number");
  expect_has(error_of({"data.max_prompt_length=99999999999999999999"}), "expected a whole number");
  expect_has(error_of({"data.max_prompt_length=null"}), "expected a whole number");
  expect_has(error_of({"data.max_prompt_length=[1]"}), "expected a whole number");
  expect_has(error_of({"actor_rollout_ref.actor.optim.lr=1e"}), "expected a number");
  expect_has(error_of({"data.prompt_key=null"}), "expected text");
  expect_has(error_of({"data.train_files=[[a]]"}), "expected a list");
  expect_has(error_of({"data.truncation=middel"}), "expected one of error, left, right, middle");
  expect_has(error_of({"trainer.logger=[console,papyrus]"}), "one of console, file, tensorboard");
}

TEST(Load, SectionSetToAScalarNamesTheRightKey) {
  expect_has(error_of({"actor_rollout_ref.rollout=3"}), "e.g. actor_rollout_ref.rollout.n=3");
  expect_has(error_of({"algorithm.kl_ctrl=0.01"}), "e.g. algorithm.kl_ctrl.kl_coef=0.01");
  expect_has(error_of({"reward.reward_manager=dapo"}), "e.g. reward.reward_manager.name=dapo");
  EXPECT_EQ(load({"numerics=fast"}).numerics.mode, "fast");
  EXPECT_EQ(load({}, "critic:\ndata:\n").data.train_batch_size, 1024);
}

TEST(Load, BrokenSyntax) {
  expect_has(error_of({"data.seed"}), "lacks '=value'");
  expect_has(error_of({"data..seed=1"}), "is no key");
  expect_has(error_of({"--data.seed 1=1"}), "not of the form key=value");
  expect_has(error_of({"trainer.logger=console,wandb"}), "put lists in brackets");
  expect_has(error_of({"trainer.logger=[console"}), "closing ]");
  expect_has(error_of({"algorithm.kl_ctrl={a"}), "{key: value}");
  expect_has(error_of({"data.prompt_key='a"}), "closing '");
  expect_has(error_of({"data.prompt_key='a'b"}), "unexpected 'b'");
  expect_has(error_of({}, "data: [unclosed"), "not valid YAML");
  expect_has(error_of({}, "- a\n- b\n"), "'key: value' lines");
  expect_has(error_of({}, "data:\n  seed: 1\n  seed: 2\n"), "run.yaml:3: key 'seed' stands twice");
  expect_has(error_of({}, "a: 1\n---\nb: 2\n"), "goes on after its end");
  expect_has(error_of({}, "data: {seed: 1}\n}"), "run.yaml:2: not valid YAML");
  std::string bomb = "a0: &a0 [x, x]\n";  // a small text whose aliases unfold to 2^40 items
  for (int i = 1; i < 40; ++i) bomb += fmt::format("a{0}: &a{0} [*a{1}, *a{1}]\n", i, i - 1);
  expect_has(error_of({}, bomb), "too deep or too large");
}

TEST(Load, MicroBatchSizeTurnsTokenBudgetsOff) {
  const auto actor = [](Overrides overrides) { return load(std::move(overrides)).actor_rollout_ref.actor; };
  EXPECT_TRUE(actor({}).use_dynamic_bsz);
  EXPECT_FALSE(actor({"actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4"}).use_dynamic_bsz);
  EXPECT_TRUE(
      actor({"actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4", "actor_rollout_ref.actor.use_dynamic_bsz=True"})
          .use_dynamic_bsz);
  expect_has(error_of({"actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4",
                       "actor_rollout_ref.actor.ppo_micro_batch_size=4"}),
             "are both set: keep actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu");
  expect_has(error_of({"actor_rollout_ref.rollout.log_prob_micro_batch_size=4",
                       "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=4"}),
             "are both set");
}

}  // namespace
}  // namespace tandem
