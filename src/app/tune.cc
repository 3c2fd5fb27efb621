// tandem sft, tandem reward-model: files of YAML and key=value overrides, in any order.
#include <fmt/format.h>

#include "app/command.h"
#include "app/config_words.h"
#include "app/tune_run.h"
#include "base/log.h"
#include "config/describe.h"
#include "config/load_tuning.h"
#include "observe/plot.h"

namespace tandem {
namespace {

struct TuneArguments {
  std::vector<std::string> words;
  bool print_config = false;
};

std::string describe(const TuneSummary& run) {
  std::vector<std::pair<std::string, std::string>> rows;
  if (!run.losses.empty())
    rows.emplace_back("loss, first -> last step",
                      fmt::format("{:.4f} -> {:.4f}", run.losses.front(), run.losses.back()));
  if (run.validation)
    for (const Metric& metric : *run.validation) rows.emplace_back(metric.name, fmt::format("{:.4f}", metric.value));
  rows.emplace_back("steps done", std::to_string(run.last_step));
  rows.emplace_back("run folder", run.folder.string());
  if (!run.last_checkpoint.empty()) {
    rows.emplace_back("last checkpoint", run.last_checkpoint.string());
    const std::filesystem::path adapter = run.last_checkpoint / "lora_adapter";
    const bool adapters = std::filesystem::exists(adapter);
    rows.emplace_back(adapters ? "its adapter" : "its model",
                      (adapters ? adapter : run.last_checkpoint / "huggingface").string());
  }
  return two_column_table(rows) + (run.interrupted ? "\nstopped by request; the same command goes on from here" : "");
}

int tune(const TuneArguments& arguments, TuningTask task) {
  const ConfigWords words = split_words(arguments.words);
  TuningConfig config =
      load_tuning_config(words.files, words.overrides, arguments.print_config ? Purpose::kPrint : Purpose::kRun);
  if (arguments.print_config) {
    print_line(describe_config(config));
    return 0;
  }
  set_num_threads(config.trainer.num_threads);
  const TuneSummary summary = TuneRun(std::move(config), task).run();
  print_line(describe(summary));
  return summary.interrupted ? 130 : 0;
}

void add(CLI::App& app, Action& action, const char* name, const char* summary, TuningTask task) {
  auto* command = app.add_subcommand(name, summary);
  auto arguments = std::make_shared<TuneArguments>();
  command->add_option("words", arguments->words, "FILE.yaml or key=value");
  command->add_flag("--print-config", arguments->print_config, "print the resolved configuration and stop");
  command->callback([&action, arguments, task] { action = [arguments, task] { return tune(*arguments, task); }; });
}

}  // namespace

void add_sft(CLI::App& app, Action& action) {
  add(app, action, "sft",
      "fine-tune a model on conversations\n\n"
      "data.train_files=FILE holds a column messages (tandem data ultrachat makes one), or prompt and response;\n"
      "model.path=DIR is what it starts from. Only the assistant's tokens are learnt. docs/sft.md has the rest.",
      TuningTask::kSupervised);
}

void add_reward_model(CLI::App& app, Action& action) {
  add(app, action, "reward-model",
      "train a reward model on pairs of replies\n\n"
      "data.train_files=FILE holds the columns prompt, chosen and rejected (tandem data hh_rlhf makes them);\n"
      "model.path=DIR is what it starts from. tandem train scores by the result with\n"
      "reward.reward_model.type=model reward.reward_model.model_path=.../huggingface. docs/sft.md has the rest.",
      TuningTask::kPreference);
}

}  // namespace tandem
