// tandem data: makes training files in verl's schema.
#include <fmt/format.h>

#include "app/command.h"
#include "base/log.h"
#include "data/prepare.h"

namespace tandem {
namespace {

int report(const PrepareReport& made) {
  print_line(fmt::format("{}: {} rows\n{}: {} rows", made.train_file.string(), made.train_rows, made.test_file.string(),
                         made.test_rows));
  for (const DroppedRow& row : made.dropped)
    log_warn(fmt::format("dropped {} row {}: {}", row.file.string(), row.row, row.reason));
  return 0;
}

}  // namespace

void add_data(CLI::App& app, Action& action) {
  auto* command = app.add_subcommand("data", "make train.parquet and test.parquet in verl's schema");
  command->require_subcommand(1);

  auto gsm8k = std::make_shared<Gsm8kOptions>();
  gsm8k->local_save_dir = "data/gsm8k";
  auto* grade_school = command->add_subcommand("gsm8k", "GSM8K from local files (jsonl, json or parquet)");
  grade_school->add_option("source", gsm8k->local_dataset_path, "folder with one *train* and one *test* file");
  grade_school->add_option("--train", gsm8k->train_file, "training file");
  grade_school->add_option("--test", gsm8k->test_file, "test file");
  grade_school->add_option("--out", gsm8k->local_save_dir, "folder to write")->capture_default_str();
  grade_school->callback([&action, gsm8k] { action = [gsm8k] { return report(prepare_gsm8k(*gsm8k)); }; });

  auto arithmetic = std::make_shared<ArithmeticOptions>();
  arithmetic->local_save_dir = "data/arithmetic";
  auto* sums = command->add_subcommand("arithmetic", "the 81 sums of two digits, with two worked examples each");
  sums->add_option("--out", arithmetic->local_save_dir, "folder to write")->capture_default_str();
  sums->add_option("--seed", arithmetic->seed, "which sums are held out for testing")->capture_default_str();
  sums->add_option("--held-out", arithmetic->held_out, "how many are")->capture_default_str();
  sums->callback([&action, arithmetic] { action = [arithmetic] { return report(prepare_arithmetic(*arithmetic)); }; });
}

}  // namespace tandem
