#include "data/prepare.h"

#include <gtest/gtest.h>

#include <algorithm>
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
  const auto report = prepare_dataset("gsm8k", {.local_dataset_path = folder, .local_save_dir = folder / "out"});
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
  prepare_dataset("gsm8k", {.local_dataset_path = folder, .local_save_dir = folder});
  const auto rows = load(folder / "train.parquet");
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0]["extra_info"]["question"], "train-00000-of-00002.jsonl");
  EXPECT_EQ(rows[1]["extra_info"]["index"], 1);
}

TEST(PrepareGsm8k, SaysWhatIsMissing) {
  const auto folder = fresh_folder("missing");
  expect_error<IoError>([&] { prepare_dataset("gsm8k", {.local_dataset_path = folder, .local_save_dir = folder}); },
                        {"*train*"});
  expect_error<ConfigError>([&] { prepare_dataset("gsm8k", {.local_save_dir = folder}); }, {"train"});
  std::ofstream(folder / "train.jsonl") << json{{"problem", "x"}, {"answer", "#### 1"}} << '\n';
  std::ofstream(folder / "test.jsonl") << json{{"question", "x"}, {"answer", "#### 1"}} << '\n';
  expect_error<DataError>([&] { prepare_dataset("gsm8k", {.local_dataset_path = folder, .local_save_dir = folder}); },
                          {"train.jsonl", "row 0", "'question'"});
  std::ofstream(folder / "train2.jsonl") << "{}\n";
  expect_error<IoError>([&] { prepare_dataset("gsm8k", {.local_dataset_path = folder, .local_save_dir = folder}); },
                        {"several"});
}

// Rows as JSON lines, made into a data set with one row held out; both files' rows in the order of their index.
struct Prepared {
  PrepareReport report;
  std::vector<json> rows;
};
Prepared prepared(const std::string& name, const std::vector<json>& records) {
  const auto folder = fresh_folder("set_" + name);
  std::ofstream file(folder / "rows.jsonl");
  for (const json& record : records) file << record << '\n';
  file.close();
  Prepared made{prepare_dataset(name, {.local_dataset_path = folder, .local_save_dir = folder / "out", .held_out = 1}),
                {}};
  for (const char* split : {"train", "test"})
    for (json& row : load(folder / "out" / (std::string(split) + ".parquet"))) {
      EXPECT_EQ(row["extra_info"]["split"], split);
      made.rows.push_back(std::move(row));
    }
  std::sort(made.rows.begin(), made.rows.end(), [](const json& a, const json& b) {
    return a["extra_info"]["index"].get<int64_t>() < b["extra_info"]["index"].get<int64_t>();
  });
  return made;
}

std::vector<std::pair<size_t, std::string>> dropped(const Prepared& made) {
  std::vector<std::pair<size_t, std::string>> all;
  for (const DroppedRow& row : made.report.dropped) all.emplace_back(row.row, row.reason);
  return all;
}
using Drops = std::vector<std::pair<size_t, std::string>>;

TEST(PrepareDataset, Math) {
  const auto made = prepared("math", {{{"problem", "P0"}, {"solution", "so \\boxed{\\frac{1}{2}}."}},
                                      {{"problem", "P1"}, {"solution", "s"}, {"answer", "x^2"}},
                                      {{"problem", "P2"}, {"solution", "no box"}},
                                      {{"problem", " "}, {"answer", "1"}},
                                      {{"problem", "P1"}, {"answer", "other"}}});
  EXPECT_EQ(dropped(made), (Drops{{2, "it has no answer, and no \\boxed{} one in its solution"},
                                  {3, "column 'problem' is absent, empty or not text"},
                                  {4, "its prompt is an earlier row's"}}));
  ASSERT_EQ(made.rows.size(), 2u);
  EXPECT_EQ(made.report.test_rows, 1u);
  EXPECT_EQ(made.rows[0]["data_source"], "DigitalLearningGmbH/MATH-lighteval");
  EXPECT_EQ(made.rows[0]["prompt"], json::parse(R"([{"role": "user",
    "content": "P0 Let's think step by step and output the final answer within \\boxed{}."}])"));
  EXPECT_EQ(made.rows[0]["reward_model"], json::parse(R"({"style": "rule", "ground_truth": "\\frac{1}{2}"})"));
  EXPECT_EQ(made.rows[1]["reward_model"]["ground_truth"], "x^2");
  EXPECT_FALSE(made.rows[0].contains("chosen"));
  EXPECT_FALSE(made.rows[0].contains("messages"));
}

TEST(PrepareDataset, ARepeatedRowIsNamedWhereItStands) {
  const auto folder = fresh_folder("repeats");
  const auto second = folder / "train-00001-of-00002.jsonl";
  const auto row = [](const char* problem) { return json{{"problem", problem}, {"answer", "1"}}; };
  std::ofstream(folder / "train-00000-of-00002.jsonl") << row("P0") << '\n' << row("P1") << '\n' << row("P2") << '\n';
  std::ofstream(second) << row("P3") << '\n' << row("P1") << '\n';
  const auto report =
      prepare_dataset("math", {.local_dataset_path = folder, .local_save_dir = folder / "out", .held_out = 1});
  EXPECT_EQ(report.train_rows + report.test_rows, 4u);
  ASSERT_EQ(report.dropped.size(), 1u);
  EXPECT_EQ(report.dropped[0].file, second);
  EXPECT_EQ(report.dropped[0].row, 1u);
}

TEST(PrepareDataset, Svamp) {
  const auto made = prepared("svamp", {{{"Body", "Tim has 8 pens"}, {"Question", "How many?"}, {"Answer", 8.0}},
                                       {{"Body", "He ran."}, {"Question", "How far?"}, {"Answer", 2.5}},
                                       {{"Body", "B"}, {"Question", "Q?"}, {"Answer", nullptr}},
                                       {{"Body", "B"}, {"Answer", 1}}});
  EXPECT_EQ(dropped(made), (Drops{{2, "column 'Answer' is absent or no number"},
                                  {3, "column 'Question' is absent, empty or not text"}}));
  EXPECT_EQ(made.rows[0]["extra_info"]["question"], "Tim has 8 pens. How many?");
  EXPECT_EQ(made.rows[0]["reward_model"]["ground_truth"], "8");
  EXPECT_EQ(made.rows[1]["extra_info"]["question"], "He ran. How far?");
  EXPECT_EQ(made.rows[1]["reward_model"]["ground_truth"], "2.5");
}

TEST(PrepareDataset, Countdown) {
  const auto made = prepared("countdown", {{{"nums", {3, 4}}, {"target", 7}, {"one_solution", "3+4"}},
                                           {{"nums", {3, "4"}}, {"target", 7}},
                                           {{"nums", {1, 2}}, {"target", 1.5}},
                                           {{"nums", {5, 6}}, {"target", 30}}});
  EXPECT_EQ(dropped(made), (Drops{{1, "column 'nums' is absent or no list of whole numbers"},
                                  {2, "column 'target' is absent or no whole number"}}));
  EXPECT_EQ(json::parse(made.rows[0]["reward_model"]["ground_truth"].get<std::string>()),
            json::parse(R"({"target": 7, "numbers": [3, 4]})"));
  const std::string prompt = made.rows[0]["prompt"][0]["content"];
  EXPECT_NE(prompt.find("Reach 7 from the numbers [3, 4]."), std::string::npos);
  EXPECT_NE(prompt.find("<answer>"), std::string::npos);
  EXPECT_EQ(made.rows[0]["data_source"], "countdown");
}

TEST(PrepareDataset, PreferencesInFourForms) {
  const json hello{{"from", "human"}, {"value", "Hello"}};
  const auto made = prepared(
      "hh_rlhf", {{{"chosen", "\n\nHuman: Hi\n\nAssistant: Yes?\n\nHuman: Help\n\nAssistant: Sure."},
                   {"rejected", "\n\nHuman: Hi\n\nAssistant: Yes?\n\nHuman: Help\n\nAssistant: No."}},
                  {{"conversations", {hello}},
                   {"chosen", {{"from", "gpt"}, {"value", "a"}}},
                   {"rejected", {{"from", "gpt"}, {"value", "b"}}}},
                  {{"prompt", "\n\nHuman: Why?\n\nAssistant:"}, {"chosen", " c"}, {"rejected", " d"}},
                  {{"chosen", {{{"role", "user"}, {"content", "Q"}}, {{"role", "assistant"}, {"content", "e"}}}},
                   {"rejected", {{{"role", "user"}, {"content", "Q"}}, {{"role", "assistant"}, {"content", "f"}}}}},
                  {{"chosen", "\n\nHuman: A\n\nAssistant: x"}, {"rejected", "\n\nHuman: B\n\nAssistant: y"}},
                  {{"chosen", "\n\nHuman: C\n\nAssistant: x"}, {"rejected", "\n\nHuman: C\n\nAssistant: x"}},
                  {{"chosen", "\n\nHuman: D\n\nAssistant:"}, {"rejected", "\n\nHuman: D\n\nAssistant: x"}},
                  {{"chosen", 5}, {"rejected", "x"}},
                  {{"chosen", "x"}}});
  EXPECT_EQ(dropped(made), (Drops{{4, "chosen and rejected answer different prompts"},
                                  {5, "chosen and rejected are the same"},
                                  {6, "a turn is empty"},
                                  {7, "'chosen' or 'rejected' is neither text nor messages"},
                                  {8, "columns 'chosen' and 'rejected' are not both there"}}));
  ASSERT_EQ(made.rows.size(), 4u);
  EXPECT_EQ(made.rows[0]["prompt"], json::parse(R"([{"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "Yes?"}, {"role": "user", "content": "Help"}])"));
  EXPECT_EQ(made.rows[0]["chosen"], "Sure.");
  EXPECT_EQ(made.rows[0]["rejected"], "No.");
  EXPECT_EQ(made.rows[0]["reward_model"], json::parse(R"({"style": "model", "ground_truth": "Sure."})"));
  EXPECT_EQ(made.rows[1]["prompt"], json::parse(R"([{"role": "user", "content": "Hello"}])"));
  EXPECT_EQ(made.rows[1]["rejected"], "b");
  EXPECT_EQ(made.rows[2]["prompt"], json::parse(R"([{"role": "user", "content": "Why?"}])"));
  EXPECT_EQ(made.rows[2]["chosen"], "c");
  EXPECT_EQ(made.rows[3]["chosen"], "e");
}

TEST(PrepareDataset, Dialogues) {
  const auto made =
      prepared("ultrachat",
               {{{"data", {"Hi", "Hello", "Bye", "See you"}}},
                {{"data", "Tell me."}},
                {{"messages",
                  {{{"role", "system"}, {"content", "S"}},
                   {{"role", "user"}, {"content", "U"}},
                   {{"role", "assistant"}, {"content", "A"}}}}},
                {{"data", {"Hi", ""}}},
                {{"messages", {{{"role", "assistant"}, {"content", "A"}}}}},
                {{"data", 3}},
                {{"messages", {{{"role", "system"}, {"content", "S"}}, {{"role", "assistant"}, {"content", "A"}}}}}});
  EXPECT_EQ(dropped(made), (Drops{{3, "a turn is empty"},
                                  {4, "it does not begin with the user"},
                                  {5, "its dialogue is neither messages nor texts in turn"},
                                  {6, "it does not begin with the user"}}));
  ASSERT_EQ(made.rows.size(), 3u);
  EXPECT_EQ(made.rows[0]["prompt"].size(), 3u);
  EXPECT_EQ(made.rows[0]["messages"].size(), 4u);
  EXPECT_EQ(made.rows[0]["reward_model"]["ground_truth"], "See you");
  EXPECT_EQ(made.rows[1]["prompt"], made.rows[1]["messages"]);
  EXPECT_EQ(made.rows[1]["reward_model"]["ground_truth"], "");
  EXPECT_EQ(made.rows[2]["prompt"][1]["content"], "U");
}

TEST(PrepareDataset, HoldsOutBySeedAndShare) {
  const auto folder = fresh_folder("held_out");
  std::ofstream file(folder / "puzzles.jsonl");
  for (int i = 1; i <= 20; ++i) file << json{{"nums", {i, 1}}, {"target", i}} << '\n';
  file.close();
  const auto test_rows = [&](double held_out, uint64_t seed) {
    prepare_dataset(
        "countdown",
        {.local_dataset_path = folder / "puzzles.jsonl", .local_save_dir = folder, .held_out = held_out, .seed = seed});
    EXPECT_EQ(load(folder / "train.parquet").size() + load(folder / "test.parquet").size(), 20u);
    return load(folder / "test.parquet");
  };
  EXPECT_EQ(test_rows(0.25, 1).size(), 5u);
  EXPECT_EQ(test_rows(7, 1).size(), 7u);
  EXPECT_EQ(test_rows(0.25, 1), test_rows(0.25, 1));
  EXPECT_NE(test_rows(0.25, 1), test_rows(0.25, 2));
  for (const double bad : {0.0, -1.0, 2.5, 20.0})
    expect_error<ConfigError>([&] { test_rows(bad, 1); }, {"held_out is", "20 rows"});
  expect_error<ConfigError>([&] { prepare_dataset("gsm9k", {}); }, {"'gsm9k'", "gsm8k, math"});
  expect_error<DataError>(
      [&] { prepare_dataset("svamp", {.local_dataset_path = folder / "puzzles.jsonl", .local_save_dir = folder}); },
      {"puzzles.jsonl", "svamp", "row 0", "'Body'"});
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
