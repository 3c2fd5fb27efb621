#include "data/table.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "data/expect_error.h"

namespace tandem {
namespace {

using nlohmann::json;

const std::filesystem::path kFixtures = std::filesystem::path(TANDEM_TEST_DATA) / "fixtures";

std::vector<json> parse(std::string_view text, JsonLayout layout) {
  std::vector<json> records;
  const size_t count = read_json_records(text, layout, "rows", [&](json&& record, size_t row) {
    EXPECT_EQ(row, records.size());
    records.push_back(std::move(record));
    return true;
  });
  EXPECT_EQ(count, records.size());
  return records;
}

std::vector<json> load(const std::string& name, const Columns& wanted = {}) {
  std::vector<json> records;
  read_records(kFixtures / name, wanted, [&](json&& record, size_t) {
    records.push_back(std::move(record));
    return true;
  });
  return records;
}

// What tools/references/make_data_fixtures.py puts into row i.
json fixture_row(int i) {
  return {{"data_source", "openai/gsm8k"},
          {"prompt", json::array({{{"role", "system"}, {"content", "Be brief."}},
                                  {{"role", "user"}, {"content", "What is " + std::to_string(i) + " × 2?"}}})},
          {"ability", "math"},
          {"reward_model", {{"style", "rule"}, {"ground_truth", std::to_string(2 * i)}}},
          {"extra_info",
           {{"split", "test"},
            {"index", i},
            {"ratio", i / 4.0},
            {"tags", i % 2 ? json::array({"a", nullptr}) : json::array()}}}};
}

class ParquetFixture : public testing::TestWithParam<const char*> {};

TEST_P(ParquetFixture, GivesEveryRowAsJson) {
  const auto records = load(GetParam());
  ASSERT_EQ(records.size(), 12u);
  for (int i = 0; i < 12; ++i) EXPECT_EQ(records[i], fixture_row(i)) << "row " << i;
}

INSTANTIATE_TEST_SUITE_P(Encodings, ParquetFixture,
                         testing::Values("snappy_dictionary.parquet", "zstd_v2.parquet", "gzip_plain.parquet",
                                         "none_large.parquet", "lz4_large_dictionary.parquet", "delta_v2.parquet",
                                         "category_column.parquet"));

TEST(Parquet, ReadsOnlyTheWantedColumnsAndStopsWhenTold) {
  const auto records = load("zstd_v2.parquet", {"ability", "absent"});
  ASSERT_EQ(records.size(), 12u);
  EXPECT_EQ(records[11], json({{"ability", "math"}}));
  EXPECT_EQ(load("zstd_v2.parquet", {"absent"}), std::vector<json>(12, json::object()));
  size_t seen = 0;
  EXPECT_EQ(read_records(kFixtures / "zstd_v2.parquet", {}, [&](json&&, size_t) { return ++seen < 7; }), 7u);
}

TEST(Parquet, NamesItsColumns) {
  EXPECT_EQ(column_names(kFixtures / "none_large.parquet"),
            (std::vector<std::string>{"data_source", "prompt", "ability", "reward_model", "extra_info"}));
}

TEST(Parquet, RefusesTextThatIsNotUtf8) {
  expect_error<DataError>([] { load("not_utf8.parquet"); }, {"not_utf8.parquet row 0", "'answer'", "UTF-8"});
}

TEST(Parquet, RefusesAbsentAndDamagedFiles) {
  expect_error<IoError>([] { load("no_such_file.parquet"); }, {"no_such_file.parquet"});
  const auto path = std::filesystem::path(testing::TempDir()) / "cut.parquet";
  std::ifstream whole(kFixtures / "zstd_v2.parquet", std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(whole)), {});
  std::ofstream(path, std::ios::binary) << bytes.substr(0, bytes.size() / 2);
  expect_error<IoError>([&] { read_records(path, {}, [](json&&, size_t) { return true; }); }, {"cut.parquet"});
}

TEST(Parquet, SurvivesAnyFlippedByte) {
  std::ifstream whole(kFixtures / "snappy_dictionary.parquet", std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(whole)), {});
  const auto path = std::filesystem::path(testing::TempDir()) / "flipped.parquet";
  for (size_t at = 0; at < bytes.size(); at += 37) {
    std::string changed = bytes;
    changed[at] = static_cast<char>(~changed[at]);
    std::ofstream(path, std::ios::binary) << changed;
    try {
      read_records(path, {}, [](json&&, size_t) { return true; });
    } catch (const Error&) {  // any other exception fails the test
    }
  }
}

TEST(JsonLines, SkipsBlankLinesMarkAndCarriageReturns) {
  const auto records = parse("\xEF\xBB\xBF{\"a\": 1}\r\n\n  \n{\"a\": \"x\\n{\"}", JsonLayout::kLines);
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0]["a"], 1);
  EXPECT_EQ(records[1]["a"], "x\n{");
}

TEST(JsonLines, NamesRowAndLineOfABadOne) {
  expect_error<DataError>([] { parse("{\"a\": 1}\n\n{\"a\": }\n", JsonLayout::kLines); }, {"rows row 1 (line 3)"});
  expect_error<DataError>([] { parse("{\"a\": 1}\n[1]\n", JsonLayout::kLines); }, {"rows row 1", "array", "object"});
  expect_error<DataError>([] { parse("{\"a\": \"\xFF\"}", JsonLayout::kLines); }, {"rows row 0"});
  expect_error<DataError>([] { parse("{\"a\": NaN}", JsonLayout::kLines); }, {"rows row 0"});
}

TEST(JsonLines, BoundsTheDepth) {
  const auto nested = [](int depth) { return "{\"a\":" + std::string(depth, '[') + std::string(depth, ']') + "}"; };
  EXPECT_EQ(parse(nested(99), JsonLayout::kLines).size(), 1u);
  expect_error<DataError>([&] { parse(nested(100), JsonLayout::kLines); }, {"row 0", "100 levels"});
  expect_error<DataError>([&] { parse(nested(1'000'000), JsonLayout::kLines); }, {"100 levels"});
}

TEST(JsonArray, ReadsObjectsWhateverTheirLayout) {
  EXPECT_TRUE(parse(" [ ] ", JsonLayout::kArray).empty());
  const auto records = parse("[{\"a\": [1, {\"b\": \"]},\\\"\"}]}\n,{\"a\": 2} ]\n", JsonLayout::kArray);
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0]["a"][1]["b"], "]},\"");
  EXPECT_EQ(records[1]["a"], 2);
}

TEST(JsonArray, RefusesWhatIsNoWholeArray) {
  const auto refuse = [](std::string_view text, std::vector<std::string> parts) {
    expect_error<DataError>([&] { parse(text, JsonLayout::kArray); }, parts);
  };
  refuse("", {"not a JSON array", ".jsonl"});
  refuse("{\"a\": 1}", {"not a JSON array"});
  refuse("[{\"a\": 1}", {"after row 0", "cut short"});
  refuse("[{\"a\": 1},", {"row 1"});
  refuse("[{\"a\": 1},]", {"row 1"});
  refuse("[{\"a\": 1}, 5]", {"row 1", "number"});
  refuse("[{\"a\": 1}] x", {"text after the end"});
  refuse("[", {"row 0"});
}

TEST(Table, RefusesUnknownEndings) {
  expect_error<DataError>([] { read_records("rows.csv", {}, [](json&&, size_t) { return true; }); },
                          {"rows.csv", ".parquet, .jsonl or .json"});
}

}  // namespace
}  // namespace tandem
