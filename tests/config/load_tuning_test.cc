#include "config/load_tuning.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"
#include "config/describe.h"

namespace tandem {
namespace {

using Words = std::vector<std::string>;

TuningConfig load(Words words) {
  words.insert(words.begin(), {"model.path=m", "data.train_files=a.parquet"});
  return load_tuning_config({}, words);
}

std::string refusal(const Words& words) {
  try {
    load(words);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(LoadTuning, ReadsVerlsKeys) {
  const TuningConfig config =
      load({"data.train_files=[a.parquet,b.parquet]", "data.max_length=77", "optim.lr=2e-5", "optim.betas=[0.9,0.95]",
            "data.micro_batch_size_per_gpu=4", "trainer.experiment_name=x",
            "+data.apply_chat_template_kwargs.enable_thinking=False", "trainer.logger=['console','clearml']"});
  EXPECT_EQ(config.data.train_files, (Words{"a.parquet", "b.parquet"}));
  EXPECT_EQ(config.data.max_length, 77);
  EXPECT_EQ(config.optim.lr, 2e-5);
  EXPECT_EQ(config.optim.betas, (std::vector<double>{0.9, 0.95}));
  EXPECT_FALSE(config.data.use_dynamic_bsz);  // setting the size of micro-batches asks for it
  EXPECT_EQ(config.trainer.default_local_dir, "runs/x/checkpoints");
  EXPECT_EQ(config.data.apply_chat_template_kwargs.text, R"({"enable_thinking":false})");
  EXPECT_EQ(config.trainer.logger, Words{"console"});
}

TEST(LoadTuning, OlderNamesAndKeysWithoutEffect) {
  const TuningConfig config = load_tuning_config(
      {}, Words{"model.partial_pretrain=m", "data.train_files=a", "data.multiturn.enable=true",
                "data.multiturn.messages_key=talk", "optim.warmup_steps_ratio=0.1", "model.strategy=fsdp2",
                "engine.param_offload=True", "model.lora_rank=0", "ulysses_sequence_parallel_size=1"});
  EXPECT_EQ(config.model.path, "m");
  EXPECT_EQ(config.data.messages_key, "talk");
  EXPECT_EQ(config.optim.lr_warmup_steps_ratio, 0.1);
}

TEST(LoadTuning, Adapters) {
  const TuningConfig config = load_tuning_config(
      {}, Words{"model.path=m", "data.train_files=a", "model.lora_rank=8", "model.target_modules=all-linear",
                "model.exclude_modules=[o_proj,down_proj]"});
  EXPECT_EQ(config.model.lora_rank, 8);
  EXPECT_EQ(config.model.lora_alpha, 16);
  EXPECT_EQ(config.model.target_modules, Words{"all-linear"});
  EXPECT_EQ(config.model.exclude_modules, (Words{"o_proj", "down_proj"}));
}

TEST(LoadTuning, RefusesNamingTheKey) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"data.max_lenght=5", "data.max_length"},
      {"model.lora.rank=8", "model.lora_rank"},
      {"model.lora_rank=-1", "model.lora_rank"},
      {"model.lora_alpha=0", "model.lora_alpha"},
      {"optim.lr=-1", "optim.lr"},
      {"data.train_batch_size=0", "data.train_batch_size"},
      {"trainer.n_gpus_per_node=8", "n_gpus_per_node"},
      {"data.truncation=middle", "data.truncation"},
      {"optim.betas=[0.9]", "optim.betas"},
      {"data.use_dynamic_bsz=false", "micro_batch_size_per_gpu"},
      {"trainer.resume_mode=resume_path", "trainer.resume_from_path"},
      {"data=5", "data"}};
  for (const auto& [word, named] : cases) EXPECT_NE(refusal({word}).find(named), std::string::npos) << word;
  EXPECT_THROW(load_tuning_config({}, Words{"data.train_files=a"}), ConfigError);
  EXPECT_THROW(load_tuning_config({}, Words{"model.path=m"}), ConfigError);
}

TEST(LoadTuning, TrackersElsewhereAreDroppedHoweverTheyAreWritten) {
  for (const char* word : {"trainer.logger=clearml", "trainer.logger=[clearml]", "trainer.logger='[clearml]'"}) {
    EXPECT_EQ(load({word}).trainer.logger, Words{}) << word;
    EXPECT_EQ(load_config({}, Words{"actor_rollout_ref.model.path=m", word}).trainer.logger, Words{}) << word;
  }
  EXPECT_EQ(load({"trainer.logger=console"}).trainer.logger, Words{"console"});
  EXPECT_NE(refusal({"trainer.logger=papyrus"}).find("one of console, file, tensorboard"), std::string::npos);
}

TEST(LoadTuning, PrintingNeedsNeitherModelNorData) {
  const TuningConfig config = load_tuning_config({}, {}, Purpose::kPrint);
  EXPECT_TRUE(config.model.path.empty());
  EXPECT_THROW(load_tuning_config({}, Words{"optim.lr=-1"}, Purpose::kPrint), ConfigError);
}

TEST(LoadTuning, WhatIsPrintedLoadsToTheSameConfiguration) {
  const TuningConfig config = load({"data.seed=5", "optim.lr=3.3e-7", "data.val_files=[v.jsonl]"});
  const std::filesystem::path path = std::filesystem::path(testing::TempDir()) / "load_tuning_test.yaml";
  for (const std::string& yaml : {resolved_yaml(config), describe_config(config)}) {
    std::ofstream(path) << yaml;
    EXPECT_EQ(resolved_yaml(load_tuning_config({path}, {})), resolved_yaml(config));
  }
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace tandem
