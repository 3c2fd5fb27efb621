#include "data/dataset.h"

#include <gtest/gtest.h>

#include <fstream>
#include <numeric>

#include "base/error.h"
#include "data/expect_error.h"

namespace tandem {
namespace {

const std::filesystem::path kFixtures = std::filesystem::path(TANDEM_TEST_DATA) / "fixtures";

// The content of the last message is the number of tokens; a template adds 3 to it. Ids are 0, 1, 2 ...
std::vector<TokenId> encode_numbers(const std::vector<Message>& messages) {
  std::vector<TokenId> ids(std::stoi(messages.back().content) + 3);
  std::iota(ids.begin(), ids.end(), 0);
  return ids;
}

std::vector<TokenId> encode_bytes(const std::vector<Message>& messages) {
  std::vector<TokenId> ids;
  for (const Message& message : messages) ids.insert(ids.end(), message.content.begin(), message.content.end());
  return ids;
}

std::filesystem::path write_rows(const std::string& name, const std::vector<std::string>& contents) {
  const auto path = std::filesystem::path(testing::TempDir()) / name;
  std::ofstream file(path);
  for (const auto& content : contents)
    file << R"({"data_source": "s", "prompt": [{"role": "user", "content": ")" << content
         << R"("}], "reward_model": {"style": "rule", "ground_truth": "1"}})" << '\n';
  return path;
}

// Templated prompts of 10, 20 and 21 tokens.
DatasetOptions three_rows() {
  DatasetOptions options;
  options.files = {write_rows("three.jsonl", {"7", "17", "18"})};
  options.max_prompt_length = 20;
  return options;
}

std::vector<TokenId> ids_of_row_2(Truncation truncation) {
  auto options = three_rows();
  options.truncation = truncation;
  const PromptDataset dataset(options, encode_numbers);
  EXPECT_EQ(dataset.size(), 3u);
  EXPECT_EQ(dataset[0]->token_ids.size(), 10u);
  EXPECT_EQ(dataset[1]->token_ids.size(), 20u);
  return dataset[2]->token_ids;
}

std::vector<TokenId> range(TokenId begin, TokenId end) {
  std::vector<TokenId> ids(end - begin);
  std::iota(ids.begin(), ids.end(), begin);
  return ids;
}

// DATA-1, to SaysWhenNothingIsLeft.
TEST(Dataset, RefusesAnOverlongPromptByFileAndRow) {
  expect_error<DataError>([] { PromptDataset(three_rows(), encode_numbers); },
                          {"three.jsonl row 2", "21 > data.max_prompt_length=20"});
}

TEST(Dataset, TruncatesLeftRightAndMiddle) {
  EXPECT_EQ(ids_of_row_2(Truncation::kLeft), range(1, 21));
  EXPECT_EQ(ids_of_row_2(Truncation::kRight), range(0, 20));
  auto middle = range(0, 10);
  for (const TokenId id : range(11, 21)) middle.push_back(id);
  EXPECT_EQ(ids_of_row_2(Truncation::kMiddle), middle);
}

TEST(Dataset, MiddleOfAnOddLimitKeepsOneMoreAtTheEnd) {
  auto options = three_rows();
  options.truncation = Truncation::kMiddle;
  options.max_prompt_length = 5;
  EXPECT_EQ(PromptDataset(options, encode_numbers)[0]->token_ids, (std::vector<TokenId>{0, 1, 7, 8, 9}));
}

TEST(Dataset, FilterKeepsTheLimitItself) {
  auto options = three_rows();
  options.filter_overlong_prompts = true;
  testing::internal::CaptureStderr();
  const PromptDataset dataset(options, encode_numbers);
  EXPECT_NE(testing::internal::GetCapturedStderr().find("1 of 3 dropped"), std::string::npos);
  EXPECT_EQ(dataset.size(), 2u);
  EXPECT_EQ(dataset.num_dropped(), 1u);
  EXPECT_EQ(dataset.num_rows(), 3u);
}

TEST(Dataset, IdsCountRowsOfAllFilesBeforeTheFilter) {
  DatasetOptions options;
  options.files = {write_rows("a.jsonl", {"50", "1"}), write_rows("b.jsonl", {"2", "60", "3"})};
  options.max_prompt_length = 20;
  options.filter_overlong_prompts = true;
  const PromptDataset dataset(options, encode_numbers);
  ASSERT_EQ(dataset.size(), 3u);
  EXPECT_EQ(dataset[0]->id, 1u);
  EXPECT_EQ(dataset[1]->id, 2u);
  EXPECT_EQ(dataset[2]->id, 4u);
  options.filter_overlong_prompts = false;
  options.files.erase(options.files.begin());
  expect_error<DataError>([&] { PromptDataset(options, encode_numbers); }, {"b.jsonl row 1", "63 > "});
}

TEST(Dataset, SaysWhenNothingIsLeft) {
  auto options = three_rows();
  options.filter_overlong_prompts = true;
  options.max_prompt_length = 9;
  expect_error<DataError>([&] { PromptDataset(options, encode_numbers); }, {"dataset empty", "all 3 rows"});
  options.files = {write_rows("none.jsonl", {})};
  expect_error<DataError>([&] { PromptDataset(options, encode_numbers); }, {"dataset empty", "none.jsonl"});
}

TEST(Dataset, RefusesBadOptions) {
  expect_error<ConfigError>([] { parse_truncation("centre"); }, {"centre", "error, left, right or middle"});
  auto options = three_rows();
  options.max_samples = 0;
  expect_error<ConfigError>([&] { PromptDataset(options, encode_numbers); }, {"max_samples is 0"});
  options.files.clear();
  expect_error<ConfigError>([&] { PromptDataset(options, encode_numbers); }, {"no data files"});
}

TEST(Dataset, ReportsTheFirstBadRowWhateverTheThreads) {
  std::vector<std::string> contents(500, "1");
  contents[123] = contents[124] = contents[400] = "18";
  DatasetOptions options;
  options.files = {write_rows("many.jsonl", contents)};
  options.num_threads = 4;
  const auto encode = [](const std::vector<Message>& messages) -> std::vector<TokenId> {
    if (messages[0].content == "18") throw DataError("bad template");
    return {1};
  };
  for (int repeat = 0; repeat < 5; ++repeat)
    expect_error<DataError>([&] { PromptDataset(options, encode); }, {"many.jsonl row 123: bad template"});
}

TEST(Dataset, ReadsVerlsColumnsFromSeveralParquetFiles) {
  DatasetOptions options;
  options.files = {kFixtures / "first_half.parquet", kFixtures / "second_half.parquet"};
  const PromptDataset dataset(options, encode_bytes);
  ASSERT_EQ(dataset.size(), 12u);
  const Prompt& prompt = *dataset[9];
  EXPECT_EQ(prompt.id, 9u);
  EXPECT_EQ(prompt.data_source, "openai/gsm8k");
  EXPECT_EQ(prompt.ground_truth, "18");
  ASSERT_EQ(prompt.messages.size(), 2u);
  EXPECT_EQ(prompt.messages[0].role, "system");
  EXPECT_EQ(prompt.messages[1].content, "What is 9 × 2?");
  EXPECT_EQ(prompt.extra_info, R"({"index":9,"ratio":2.25,"split":"test","tags":["a",null]})");
}

std::string truth_in(const std::string& name) {
  DatasetOptions options;
  options.files = {kFixtures / name};
  return PromptDataset(options, encode_bytes)[0]->ground_truth;
}

TEST(Dataset, KeepsTruthsThatAreNoTextAsJson) {
  EXPECT_EQ(truth_in("truth_int.parquet"), "7");
  EXPECT_EQ(truth_in("truth_float.parquet"), "2.5");
  EXPECT_EQ(truth_in("truth_list.parquet"), R"(["x","y"])");
}

void expect_refused(DatasetOptions options, const std::string& name, const std::vector<std::string>& parts) {
  options.files = {kFixtures / name};
  expect_error<DataError>([&] { PromptDataset(options, encode_bytes); }, parts);
}

TEST(Dataset, NamesRowColumnAndTheColumnsPresent) {
  expect_refused({}, "null_prompt.parquet", {"null_prompt.parquet row 3", "'prompt' is absent or null"});
  expect_refused({}, "text_prompt.parquet", {"row 0", "'prompt' is string", "{role, content}", "data_source, prompt"});
  expect_refused({}, "other_columns.parquet", {"'prompt' is absent", "data.prompt_key", "question, answer"});
  DatasetOptions options;
  options.reward_fn_key = "source";
  expect_refused(options, "zstd_v2.parquet", {"'source' is absent", "data.reward_fn_key", "data_source, prompt"});
}

TEST(Dataset, UnscoredRowsNeedNoTruth) {
  const auto path = std::filesystem::path(testing::TempDir()) / "bare.json";
  std::ofstream(path) << R"([{"prompt": [{"role": "user", "content": "hi"}]}])";
  DatasetOptions options;
  options.files = {path};
  expect_error<DataError>([&] { PromptDataset(options, encode_bytes); }, {"bare.json row 0", "'data_source'"});
  options.scored = false;
  const PromptDataset dataset(options, encode_bytes);
  EXPECT_EQ(dataset[0]->ground_truth, "");
  EXPECT_EQ(dataset[0]->extra_info, "{}");
}

TEST(Dataset, RefusesMedia) {
  const auto path = std::filesystem::path(testing::TempDir()) / "media.jsonl";
  std::ofstream(path) << R"({"prompt": [{"role": "user", "content": "hi"}], "images": []})" << '\n'
                      << R"({"prompt": [{"role": "user", "content": "hi"}], "images": ["cat.png"]})";
  DatasetOptions options;
  options.files = {path};
  options.scored = false;
  expect_error<DataError>([&] { PromptDataset(options, encode_bytes); }, {"media.jsonl row 1", "'images'"});
}

std::vector<uint64_t> ids_of(const DatasetOptions& options) {
  const PromptDataset dataset(options, encode_numbers);
  std::vector<uint64_t> ids;
  for (size_t i = 0; i < dataset.size(); ++i) ids.push_back(dataset[i]->id);
  return ids;
}

TEST(Dataset, MaxSamplesTakesTheFirstRowsOrDrawsThem) {
  DatasetOptions options;
  options.files = {write_rows("a.jsonl", std::vector<std::string>(60, "1")),
                   write_rows("b.jsonl", std::vector<std::string>(40, "1"))};
  options.max_samples = 65;
  const auto first = ids_of(options);
  ASSERT_EQ(first.size(), 65u);
  EXPECT_EQ(first.back(), 64u);
  options.shuffle = true;
  const auto drawn = ids_of(options);
  ASSERT_EQ(drawn.size(), 65u);
  EXPECT_TRUE(std::is_sorted(drawn.begin(), drawn.end()));
  EXPECT_EQ(std::adjacent_find(drawn.begin(), drawn.end()), drawn.end());
  EXPECT_NE(drawn, first);
  EXPECT_EQ(drawn, ids_of(options));
  options.seed = 1;
  EXPECT_NE(drawn, ids_of(options));
  options.max_samples = 1000;
  EXPECT_EQ(ids_of(options).size(), 100u);
}

}  // namespace
}  // namespace tandem
