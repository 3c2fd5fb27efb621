// Makes train.parquet and test.parquet in verl's schema: the back end of `tandem data`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace tandem {

struct DroppedRow {
  std::filesystem::path file;
  size_t row = 0;  // 0-based
  std::string reason;
};

struct PrepareReport {
  std::filesystem::path train_file, test_file;
  size_t train_rows = 0, test_rows = 0;
  std::vector<DroppedRow> dropped;
};

// Local files in any form read_records() reads.
struct PrepareOptions {
  // A table; or a folder holding one file (or numbered shards) named *train* and one named *test*, in itself or in
  // `main/`, or one table only.
  std::filesystem::path local_dataset_path;
  // Or the files themselves; they win over the folder.
  std::filesystem::path train_file, test_file;
  std::filesystem::path local_save_dir;
  // Where there is no test file: how many rows of the training file become one, drawn by `seed`; below 1 a share.
  // Rows that repeat an earlier one's prompt are dropped first, so that no prompt stands in both.
  double held_out = 0.1;
  uint64_t seed = 0;
};

// The data sets of prepare_dataset(); a row that cannot be used is dropped with its reason:
//   gsm8k      GSM8K: question and answer, as verl's examples/data_preprocess/gsm8k.py makes it: the question, a space
//              and the instruction; the number after the first "#### " of the answer without its commas; the raw
//              question and answer in extra_info
//   math       MATH: problem, and answer or a solution with a boxed answer; data_source
//              "DigitalLearningGmbH/MATH-lighteval"
//   svamp      SVAMP: Body, Question, Answer; answered as GSM8K is ("#### 8")
//   countdown  nums and target; answered in <answer> tags; the truth is {"target": .., "numbers": [..]} as JSON
//   hh_rlhf    preferences: chosen and rejected as dialogues ("\n\nHuman: .."), as texts beside a prompt, as
//              messages or in ShareGPT's form; columns chosen and rejected hold the last replies, chosen is the truth
//              of style "model"
//   ultrachat  dialogues: data (texts in turn) or messages; prompt ends before the last reply, which is the truth of
//              style "model"; the column messages holds the whole
struct DatasetKind {
  std::string_view name, summary;
};
const std::vector<DatasetKind>& dataset_kinds();
PrepareReport prepare_dataset(std::string_view name, const PrepareOptions& options);  // ConfigError for other names

// The quickstart's task: all 81 sums a+b of digits 1..9 as a chat with two worked examples (system "Add.", "1+1" "2",
// "5+3" "8", then the question); the truth is the sum as text, data_source "tandem/arithmetic". `held_out` of them,
// drawn by `seed`, are the test file.
struct ArithmeticOptions {
  std::filesystem::path local_save_dir;
  uint64_t seed = 0;
  size_t held_out = 16;  // 1 to 80
};
PrepareReport prepare_arithmetic(const ArithmeticOptions& options);

}  // namespace tandem
