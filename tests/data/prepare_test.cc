#include "data/prepare.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "data/expect_error.h"
#include "data/table.h"

namespace tandem {
namespace {

using nlohmann::json;

std::filesystem::path fresh_folder(const std::string& name) {
  const auto folder = std::filesystem::path(testing::TempDir()) / name;
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  return folder;
}

std::vector<json> load(const std::filesystem::path& path) {
  std::vector<json> records;
  read_records(path, {}, [&](json&& record, size_t) {
    records.push_back(std::move(record));
    return true;
  });
  return records;
}

TEST(PrepareGsm8k, WritesWhatVerlWrites) {
  const auto folder = fresh_folder("gsm8k");
  std::ofstream(folder / "gsm8k_train.jsonl")
      << json{{"question", "How many?"}, {"answer", "So 1,200.\n#### -1,234.5"}} << '\n'
      << json{{"question", "Bad"}, {"answer", "no number ####"}} << '\n'
      << json{{"question", "Two?"}, {"answer", "#### x then #### 7 then #### 8"}} << '\n';
  std::ofstream(folder / "gsm8k_test.jsonl") << json{{"question", "Q"}, {"answer", "#### 3"}} << '\n';
  std::ofstream(folder / "train_socratic.jsonl") << "{}\n";
  const auto report = prepare_gsm8k({.local_dataset_path = folder, .local_save_dir = folder / "out"});
  EXPECT_EQ(report.train_rows, 2u);
  EXPECT_EQ(report.test_rows, 1u);
  ASSERT_EQ(report.dropped.size(), 1u);
  EXPECT_EQ(report.dropped[0].row, 1u);

  const auto rows = load(folder / "out/train.parquet");
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0], json::parse(R"({
    "data_source": "openai/gsm8k",
    "prompt": [{"role": "user",
      "content": "How many? Let's think step by step and output the final answer after \"####\"."}],
    "ability": "math",
    "reward_model": {"style": "rule", "ground_truth": "-1234.5"},
    "extra_info": {"split": "train", "index": 0, "answer": "So 1,200.\n#### -1,234.5", "question": "How many?"}})"));
  EXPECT_EQ(rows[1]["reward_model"]["ground_truth"], "7");
  EXPECT_EQ(rows[1]["extra_info"]["index"], 2);
  EXPECT_EQ(load(folder / "out/test.parquet")[0]["extra_info"]["split"], "test");
}

TEST(PrepareGsm8k, FindsShardsInMain) {
  const auto folder = fresh_folder("shards");
  std::filesystem::create_directories(folder / "main");
  for (const char* name : {"train-00001-of-00002.jsonl", "train-00000-of-00002.jsonl", "test-00000-of-00001.jsonl"})
    std::ofstream(folder / "main" / name) << json{{"question", name}, {"answer", "#### 1"}} << '\n';
  prepare_gsm8k({.local_dataset_path = folder, .local_save_dir = folder});
  const auto rows = load(folder / "train.parquet");
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0]["extra_info"]["question"], "train-00000-of-00002.jsonl");
  EXPECT_EQ(rows[1]["extra_info"]["index"], 1);
}

TEST(PrepareGsm8k, SaysWhatIsMissing) {
  const auto folder = fresh_folder("missing");
  expect_error<IoError>([&] { prepare_gsm8k({.local_dataset_path = folder, .local_save_dir = folder}); }, {"*train*"});
  expect_error<ConfigError>([&] { prepare_gsm8k({.local_save_dir = folder}); }, {"train"});
  std::ofstream(folder / "train.jsonl") << json{{"problem", "x"}, {"answer", "#### 1"}} << '\n';
  std::ofstream(folder / "test.jsonl") << json{{"question", "x"}, {"answer", "#### 1"}} << '\n';
  expect_error<DataError>([&] { prepare_gsm8k({.local_dataset_path = folder, .local_save_dir = folder}); },
                          {"train.jsonl row 0", "'question'"});
  std::ofstream(folder / "train2.jsonl") << "{}\n";
  expect_error<IoError>([&] { prepare_gsm8k({.local_dataset_path = folder, .local_save_dir = folder}); }, {"several"});
}

TEST(PrepareArithmetic, SplitsTheEightyOneSums) {
  const auto folder = fresh_folder("arithmetic");
  const auto report = prepare_arithmetic({.local_save_dir = folder, .seed = 1});
  EXPECT_EQ(report.train_rows, 65u);
  EXPECT_EQ(report.test_rows, 16u);
  std::set<std::string> questions;
  for (const char* name : {"train.parquet", "test.parquet"}) {
    for (const json& row : load(folder / name)) {
      const std::string question = row["prompt"][5]["content"];
      questions.insert(question);
      const int a = question.at(0) - '0', b = question.at(2) - '0';
      EXPECT_EQ(question, std::to_string(a) + "+" + std::to_string(b));
      EXPECT_EQ(row["reward_model"]["ground_truth"], std::to_string(a + b));
      EXPECT_EQ(row["data_source"], "tandem/arithmetic");
      auto examples = row["prompt"];
      examples.erase(5);
      EXPECT_EQ(examples, json::parse(R"([
        {"role": "system", "content": "Add."}, {"role": "user", "content": "1+1"},
        {"role": "assistant", "content": "2"}, {"role": "user", "content": "5+3"},
        {"role": "assistant", "content": "8"}])"));
    }
  }
  EXPECT_EQ(questions.size(), 81u);
}

TEST(PrepareArithmetic, TheSeedChoosesTheTestRows) {
  const auto test_rows = [](uint64_t seed) {
    const auto folder = fresh_folder("seeded");
    prepare_arithmetic({.local_save_dir = folder, .seed = seed, .held_out = 5});
    return load(folder / "test.parquet");
  };
  EXPECT_EQ(test_rows(1), test_rows(1));
  EXPECT_NE(test_rows(1), test_rows(2));
  EXPECT_EQ(test_rows(1).size(), 5u);
  expect_error<ConfigError>([] { prepare_arithmetic({.local_save_dir = "x", .held_out = 81}); }, {"held_out is 81"});
}

}  // namespace
}  // namespace tandem
