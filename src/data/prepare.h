// Makes train.parquet and test.parquet in verl's schema: the back end of `tandem data`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
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

// GSM8K from local files with columns question and answer, as verl's examples/data_preprocess/gsm8k.py makes it: the
// question, a space and the instruction; the number after the first "#### " of the answer without its commas; the
// raw question and answer in extra_info. A row without such a number is dropped and reported.
struct Gsm8kOptions {
  // A folder holding one file (or numbered shards) named *train* and one named *test*, in itself or in `main/`.
  std::filesystem::path local_dataset_path;
  // Or the files themselves; they win over the folder.
  std::filesystem::path train_file, test_file;
  std::filesystem::path local_save_dir;
};
PrepareReport prepare_gsm8k(const Gsm8kOptions& options);

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
