#include "data/prepare.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/rng.h"
#include "data/prepare_rows.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

bool is_table(const fs::path& path) {
  const auto extension = path.extension();
  return extension == ".parquet" || extension == ".jsonl" || extension == ".json";
}

std::vector<fs::path> tables_in(const fs::path& folder) {
  std::vector<fs::path> tables;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.is_regular_file() && is_table(entry.path())) tables.push_back(entry.path());
  return tables;
}

// One file named after the split, or its shards ("train-00000-of-00002.parquet"), sorted. None where there is none.
std::vector<fs::path> find_split(const fs::path& folder, const std::string& split) {
  std::vector<fs::path> found, shards;
  for (const fs::path& place : {folder, folder / "main"}) {
    if (!fs::is_directory(place)) continue;
    for (const fs::path& path : tables_in(place)) {
      const std::string name = path.filename().string();
      if (name.find(split) == name.npos || name.find("socratic") != name.npos) continue;  // GSM8K's other edition
      (name.find("-of-") == name.npos ? found : shards).push_back(path);
    }
  }
  std::sort(shards.begin(), shards.end());
  if (found.empty()) return shards;
  if (found.size() == 1 && shards.empty()) return found;
  throw IoError(fmt::format("{}: several *{}* files; name the one to use", folder.string(), split));
}

struct Inputs {
  std::vector<fs::path> train, test;  // no test files: rows are held out
};

Inputs find_inputs(const PrepareOptions& options) {
  const fs::path& source = options.local_dataset_path;
  Inputs inputs;
  if (!options.train_file.empty()) inputs.train = {options.train_file};
  if (!options.test_file.empty()) inputs.test = {options.test_file};
  if (!inputs.train.empty()) return inputs;
  if (source.empty()) throw ConfigError("no train file given; name a file or folder to read, or the train file itself");
  if (!fs::is_directory(source)) {
    inputs.train = {source};
    return inputs;
  }
  inputs.train = find_split(source, "train");
  if (inputs.test.empty()) inputs.test = find_split(source, "test");
  if (inputs.train.empty() && inputs.test.size() <= 1) {  // perhaps the only table there is
    if (const auto tables = tables_in(source); tables.size() == 1) inputs = {tables, {}};
  }
  if (inputs.train.empty())
    throw IoError(fmt::format("{}: no *train* file (.parquet, .jsonl, .json); put the data set there or name the file",
                              source.string()));
  return inputs;
}

std::string prompt_text(const PromptRow& row) {
  std::string text;
  for (const Message& message : row.messages) text += message.role + '\0' + message.content + '\0';
  return text;
}

// Unless `repeats` may stay, rows with an earlier one's prompt are dropped: held out, it would stand in both files.
std::vector<PromptRow> read_rows(const DatasetReader& reader, const std::vector<fs::path>& files,
                                 const std::string& split, bool repeats, std::vector<DroppedRow>* dropped) {
  std::vector<PromptRow> rows;
  std::set<std::string> seen;
  const size_t dropped_before = dropped->size();
  int64_t index = 0;  // counts input rows, so that a dropped one does not shift the others
  for (const fs::path& file : files) {
    read_records(file, reader.columns, [&](nlohmann::json&& record, size_t row) {
      auto made = reader.row(record);
      auto* usable = std::get_if<PromptRow>(&made);
      if (!usable) {
        dropped->push_back({file, row, std::get<Unusable>(made).reason});
      } else if (!repeats && !seen.insert(prompt_text(*usable)).second) {
        dropped->push_back({file, row, "its prompt is an earlier row's"});
      } else {
        usable->split = split;
        usable->index = index;
        rows.push_back(std::move(*usable));
      }
      ++index;
      return true;
    });
  }
  if (!rows.empty()) return rows;
  const std::string why = dropped->size() > dropped_before ? fmt::format("row {}: {}", dropped->at(dropped_before).row,
                                                                         dropped->at(dropped_before).reason)
                                                           : "it is empty";
  throw DataError(fmt::format("{}: no row can be used as {}; {}", files.front().string(), reader.name, why));
}

// Moves `held_out` of the rows to a test set; both keep the file's order.
std::vector<PromptRow> hold_out(std::vector<PromptRow>& rows, double held_out, uint64_t seed) {
  const double wanted =
      held_out < 1 ? std::max(1.0, std::round(held_out * static_cast<double>(rows.size()))) : held_out;
  if (!(held_out > 0) || wanted != std::floor(wanted) || wanted >= static_cast<double>(rows.size()))
    throw ConfigError(fmt::format("held_out is {}; of {} rows it must be a share below 1 or a whole number below {}",
                                  held_out, rows.size(), rows.size()));
  Philox random(seed);
  std::set<size_t> chosen;
  while (chosen.size() < static_cast<size_t>(wanted)) chosen.insert(random.below(rows.size()));
  std::vector<PromptRow> train, test;
  for (size_t i = 0; i < rows.size(); ++i) {
    const bool is_test = chosen.contains(i);
    if (is_test) rows[i].split = "test";
    (is_test ? test : train).push_back(std::move(rows[i]));
  }
  rows = std::move(train);
  return test;
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

const std::vector<DatasetKind>& dataset_kinds() {
  static const std::vector<DatasetKind> kinds = [] {
    std::vector<DatasetKind> made;
    for (const DatasetReader& reader : dataset_readers()) made.push_back({reader.name, reader.summary});
    return made;
  }();
  return kinds;
}

PrepareReport prepare_dataset(std::string_view name, const PrepareOptions& options) {
  const auto& readers = dataset_readers();
  const auto reader = std::find_if(readers.begin(), readers.end(), [&](const auto& r) { return r.name == name; });
  if (reader == readers.end()) {
    std::vector<std::string_view> names;
    for (const DatasetReader& known : readers) names.push_back(known.name);
    throw ConfigError(fmt::format("data set '{}' is unknown; known are {}", name, fmt::join(names, ", ")));
  }
  const Inputs inputs = find_inputs(options);
  std::vector<DroppedRow> dropped;
  const bool separate = !inputs.test.empty();
  auto train = read_rows(*reader, inputs.train, "train", separate, &dropped);
  const auto test = separate ? read_rows(*reader, inputs.test, "test", true, &dropped)
                             : hold_out(train, options.held_out, options.seed);
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
