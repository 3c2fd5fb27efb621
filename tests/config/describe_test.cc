#include "config/describe.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/file.h"
#include "config/fields.h"
#include "config/load.h"

namespace tandem {
namespace {

const std::vector<std::string> kOverrides = {
    "actor_rollout_ref.model.path=~/models/it's here",
    "actor_rollout_ref.rollout.n=8",
    "actor_rollout_ref.actor.optim.lr=3.3e-7",
    R"(actor_rollout_ref.rollout.stop=["\n\"", '#: x', null_like, 'null'])",
    "data.apply_chat_template_kwargs={enable_thinking: false, note: 'a \\${b}', list: [1, 2.5, null]}",
    "data.seed=5",
    "reward.rule=math",
    "trainer.experiment_name='\\${odd} name'",
    "trainer.rollout_data_dir=007",
};

std::vector<std::string> texts(Config config) {
  std::vector<std::string> out;
  for (const Field& field : list_fields(config).fields) out.push_back(field.key + "=" + field_text(field));
  return out;
}

TEST(Describe, WhatIsPrintedLoadsToTheSameConfiguration) {
  const Config config = parse_config("", "", kOverrides).config;
  EXPECT_EQ(config.actor_rollout_ref.rollout.stop, (std::vector<std::string>{"\\n\"", "#: x", "null_like", "null"}));
  EXPECT_EQ(config.trainer.experiment_name, "${odd} name");
  for (const std::string& yaml : {resolved_yaml(config), describe_config(config), describe_config(config, 7473)}) {
    const Config again = parse_config(yaml, "printed", {}).config;
    EXPECT_EQ(texts(again), texts(config));
    EXPECT_EQ(again.actor_rollout_ref.rollout.stop, config.actor_rollout_ref.rollout.stop);
    EXPECT_EQ(again.data.apply_chat_template_kwargs.text, config.data.apply_chat_template_kwargs.text);
    EXPECT_EQ(again.trainer.experiment_name, config.trainer.experiment_name);
    EXPECT_EQ(again.actor_rollout_ref.actor.optim.lr, 3.3e-7);
    EXPECT_EQ(again.trainer.rollout_data_dir, "007");
  }
}

TEST(Describe, MarksWhatDiffersFromTheDefaults) {
  const std::vector<std::string> overrides = {"actor_rollout_ref.model.path=/m", "data.train_batch_size=300",
                                              "trainer.experiment_name=x"};
  const std::string text = describe_config(parse_config("", "", overrides).config, 1000);
  const auto line_with = [&](const std::string& start) {
    const size_t at = text.find("\n" + start);
    return at == std::string::npos ? "" : text.substr(at + 1, text.find('\n', at + 1) - at - 1);
  };
  EXPECT_NE(line_with("  train_batch_size: 300").find("# * (default 1024) prompts a step"), std::string::npos);
  EXPECT_NE(line_with("  max_prompt_length: 512").find("# most tokens"), std::string::npos);
  // It follows experiment_name, so it is still at its default.
  EXPECT_EQ(line_with("  default_local_dir: runs/x/checkpoints").find('*'), std::string::npos);
  EXPECT_NE(text.find("samples a step              300 = 300 prompts x 1 (rollout.n)"), std::string::npos) << text;
  EXPECT_NE(text.find("steps                       90 (1000 rows, 3 an epoch)"), std::string::npos) << text;
}

// Without a model there is nothing to run, but every key can be shown.
TEST(Describe, PrintsWithoutAModel) {
  const std::vector<std::string> overrides = {"data.train_batch_size=24",
                                              "actor_rollout_ref.actor.ppo_mini_batch_size=24"};
  EXPECT_THROW(load_config_with_notes({}, overrides), ConfigError);
  Config config = load_config_with_notes({}, overrides, Purpose::kPrint).config;
  const std::string text = describe_config(config);
  for (const Field& field : list_fields(config).fields)
    EXPECT_NE(text.find(" " + field.key.substr(field.key.rfind('.') + 1) + ": "), std::string::npos) << field.key;
  const std::vector<std::string> bad = {"data.train_batch_size=0"};
  EXPECT_THROW(load_config_with_notes({}, bad, Purpose::kPrint), ConfigError);
}

TEST(Describe, EveryFieldIsDocumentedAndEveryDefaultIsAmongItsChoices) {
  Config config;
  for (const Field& field : list_fields(config).fields) {
    EXPECT_GT(field.doc.size(), 10u) << field.key;
    EXPECT_EQ(field.doc.find('\n'), std::string::npos) << field.key;
    EXPECT_NO_THROW(assign(field, parse_yaml("v: " + field_text(field), "").entries.at(0).second)) << field.key;
  }
}

TEST(Describe, TheReferencePageIsFresh) {
  const std::filesystem::path page = std::filesystem::path(TANDEM_TEST_DATA) / "../../docs/config.md";
  EXPECT_EQ(read_file(page), config_markdown()) << "write it anew: see the first lines of docs/config.md";
}

}  // namespace
}  // namespace tandem
