#include "data/prepare.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/rng.h"
#include "data/parquet.h"
#include "data/table.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kGsm8kInstruction = "Let's think step by step and output the final answer after \"####\".";

// The first match of `#### (\-?[0-9\.\,]+)`, commas removed.
std::optional<std::string> gsm8k_truth(std::string_view answer) {
  constexpr std::string_view kMarker = "#### ";
  for (size_t at = answer.find(kMarker); at != answer.npos; at = answer.find(kMarker, at + 1)) {
    std::string_view rest = answer.substr(at + kMarker.size());
    const size_t sign = rest.starts_with('-') ? 1 : 0;
    const size_t end = std::min(rest.find_first_not_of("0123456789.,", sign), rest.size());
    if (end == sign) continue;
    std::string number(rest.substr(0, end));
    std::erase(number, ',');
    return number;
  }
  return std::nullopt;
}

bool is_table(const fs::path& path) {
  const auto extension = path.extension();
  return extension == ".parquet" || extension == ".jsonl" || extension == ".json";
}

// One file named after the split, or its shards ("train-00000-of-00002.parquet"), sorted.
std::vector<fs::path> find_split(const fs::path& folder, const std::string& split) {
  std::vector<fs::path> found, shards;
  for (const fs::path& place : {folder, folder / "main"}) {
    if (!fs::is_directory(place)) continue;
    for (const auto& entry : fs::directory_iterator(place)) {
      const std::string name = entry.path().filename().string();
      if (!entry.is_regular_file() || !is_table(entry.path()) || name.find(split) == name.npos) continue;
      if (name.find("socratic") != name.npos) continue;  // GSM8K's other edition
      (name.find("-of-") == name.npos ? found : shards).push_back(entry.path());
    }
  }
  std::sort(shards.begin(), shards.end());
  if (found.empty() && !shards.empty()) return shards;
  if (found.size() == 1 && shards.empty()) return found;
  if (found.empty())
    throw IoError(fmt::format("{}: no *{}* file (.parquet, .jsonl, .json); download GSM8K there or name the file",
                              folder.string(), split));
  throw IoError(fmt::format("{}: several *{}* files; name the one to use", folder.string(), split));
}

std::vector<fs::path> input_files(const Gsm8kOptions& options, const fs::path& file, const std::string& split) {
  if (!file.empty()) return {file};
  if (options.local_dataset_path.empty())
    throw ConfigError(fmt::format("no {} file given; set local_dataset_path or the file itself", split));
  return find_split(options.local_dataset_path, split);
}

std::string text_column(const nlohmann::json& record, const char* key, const fs::path& file, size_t row) {
  const auto found = record.find(key);
  if (found == record.end() || !found->is_string())
    throw DataError(fmt::format("{} row {}: column '{}' is absent or not text; GSM8K has question and answer",
                                file.string(), row, key));
  return found->get<std::string>();
}

std::vector<PromptRow> gsm8k_rows(const std::vector<fs::path>& files, const std::string& split,
                                  std::vector<DroppedRow>* dropped) {
  std::vector<PromptRow> rows;
  int64_t index = 0;  // counts input rows, so that a dropped one does not shift the others
  for (const fs::path& file : files) {
    read_records(file, {"question", "answer"}, [&](nlohmann::json&& record, size_t row) {
      const std::string question = text_column(record, "question", file, row);
      const std::string answer = text_column(record, "answer", file, row);
      const int64_t at = index++;
      const auto truth = gsm8k_truth(answer);
      if (!truth) {
        dropped->push_back({file, row, "its answer has no number after \"#### \""});
        return true;
      }
      rows.push_back({"openai/gsm8k",
                      {{"user", fmt::format("{} {}", question, kGsm8kInstruction)}},
                      "math",
                      *truth,
                      split,
                      at,
                      answer,
                      question});
      return true;
    });
  }
  if (rows.empty()) throw DataError(fmt::format("{}: no row can be used", files.front().string()));
  return rows;
}

PromptRow arithmetic_row(int a, int b, const std::string& split, int64_t index) {
  const std::string question = fmt::format("{}+{}", a, b);
  const std::string answer = std::to_string(a + b);
  return {"tandem/arithmetic",
          {{"system", "Add."},
           {"user", "1+1"},
           {"assistant", "2"},
           {"user", "5+3"},
           {"assistant", "8"},
           {"user", question}},
          "math",
          answer,
          split,
          index,
          answer,
          question};
}

PrepareReport write_splits(const fs::path& folder, const std::vector<PromptRow>& train,
                           const std::vector<PromptRow>& test) {
  std::error_code failed;
  fs::create_directories(folder, failed);
  if (failed) throw IoError(fmt::format("cannot make folder {}: {}", folder.string(), failed.message()));
  PrepareReport report{folder / "train.parquet", folder / "test.parquet", train.size(), test.size(), {}};
  write_prompt_parquet(report.train_file, train);
  write_prompt_parquet(report.test_file, test);
  return report;
}

}  // namespace

PrepareReport prepare_gsm8k(const Gsm8kOptions& options) {
  std::vector<DroppedRow> dropped;
  const auto train = gsm8k_rows(input_files(options, options.train_file, "train"), "train", &dropped);
  const auto test = gsm8k_rows(input_files(options, options.test_file, "test"), "test", &dropped);
  PrepareReport report = write_splits(options.local_save_dir, train, test);
  report.dropped = std::move(dropped);
  return report;
}

PrepareReport prepare_arithmetic(const ArithmeticOptions& options) {
  constexpr size_t kSums = 81;
  if (options.held_out < 1 || options.held_out >= kSums)
    throw ConfigError(fmt::format("held_out is {}; it must be between 1 and {}", options.held_out, kSums - 1));
  Philox random(options.seed);
  std::set<size_t> held_out;
  while (held_out.size() < options.held_out) held_out.insert(random.below(kSums));
  std::vector<PromptRow> train, test;
  for (size_t sum = 0; sum < kSums; ++sum) {
    const bool is_test = held_out.contains(sum);
    auto& rows = is_test ? test : train;
    rows.push_back(arithmetic_row(static_cast<int>(sum / 9) + 1, static_cast<int>(sum % 9) + 1,
                                  is_test ? "test" : "train", static_cast<int64_t>(rows.size())));
  }
  return write_splits(options.local_save_dir, train, test);
}

}  // namespace tandem
