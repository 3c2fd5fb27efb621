// tandem data: makes training files in verl's schema.
#include <fmt/format.h>

#include <map>

#include "app/command.h"
#include "base/log.h"
#include "data/prepare.h"

namespace tandem {
namespace {

int report(const PrepareReport& made) {
  print_line(fmt::format("{}: {} rows\n{}: {} rows", made.train_file.string(), made.train_rows, made.test_file.string(),
                         made.test_rows));
  struct Group {
    size_t count = 0;
    const DroppedRow* first = nullptr;
  };
  std::map<std::string, Group> by_reason;
  for (const DroppedRow& row : made.dropped) {
    Group& group = by_reason[row.reason];
    if (group.count++ == 0) group.first = &row;
  }
  for (const auto& [reason, group] : by_reason)
    log_warn(fmt::format("dropped {} row{}: {} (first: {} row {})", group.count, group.count == 1 ? "" : "s", reason,
                         group.first->file.string(), group.first->row));
  return 0;
}

}  // namespace

void add_data(CLI::App& app, Action& action) {
  auto* command = app.add_subcommand("data", "make train.parquet and test.parquet in verl's schema");
  command->require_subcommand(1);

  for (const DatasetKind& kind : dataset_kinds()) {
    const std::string name(kind.name);
    auto options = std::make_shared<PrepareOptions>();
    options->local_save_dir = "data/" + name;
    auto* made = command->add_subcommand(name, std::string(kind.summary) + " (from jsonl, json or parquet)");
    made->add_option("source", options->local_dataset_path, "a file, or a folder with one *train* and one *test* file");
    made->add_option("--train", options->train_file, "training file");
    made->add_option("--test", options->test_file, "test file");
    made->add_option("--out", options->local_save_dir, "folder to write")->capture_default_str();
    made->add_option("--held-out", options->held_out,
                     "without a test file: test rows taken from the training file, or "
                     "below 1 their share")
        ->capture_default_str();
    made->add_option("--seed", options->seed, "which rows are held out")->capture_default_str();
    made->callback(
        [&action, name, options] { action = [name, options] { return report(prepare_dataset(name, *options)); }; });
  }

  auto arithmetic = std::make_shared<ArithmeticOptions>();
  arithmetic->local_save_dir = "data/arithmetic";
  auto* sums = command->add_subcommand("arithmetic", "the 81 sums of two digits, with two worked examples each");
  sums->add_option("--out", arithmetic->local_save_dir, "folder to write")->capture_default_str();
  sums->add_option("--seed", arithmetic->seed, "which sums are held out for testing")->capture_default_str();
  sums->add_option("--held-out", arithmetic->held_out, "how many are")->capture_default_str();
  sums->callback([&action, arithmetic] { action = [arithmetic] { return report(prepare_arithmetic(*arithmetic)); }; });
}

}  // namespace tandem
