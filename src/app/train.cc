// tandem train: files of YAML and key=value overrides, in any order.
#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "app/command.h"
#include "app/config_words.h"
#include "app/preflight_run.h"
#include "app/ranks.h"
#include "app/run_summary.h"
#include "app/train_run.h"
#include "base/log.h"
#include "config/describe.h"
#include "config/load.h"

namespace tandem {
namespace {

struct TrainArguments {
  std::vector<std::string> words;
  bool print_config = false;
  RankAddress address;
  std::string among;
};

std::vector<int> numbers_of(const std::string& text) {
  std::vector<int> numbers;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) numbers.push_back(std::stoi(part));
  return numbers;
}

int follow_as_rank(const TrainArguments& arguments, Config config) {
  RankAddress address = arguments.address;
  if (!address.role.empty()) {
    set_num_threads(threads_of_a_rank(config));
    return follow_role(config, address);
  }
  address.among = numbers_of(arguments.among);
  config = on_ranks(std::move(config), address.among);
  set_num_threads(threads_of_a_rank(config));
  return follow_run(config, address);
}

int train(const TrainArguments& arguments) {
  const ConfigWords words = split_words(arguments.words);
  Config config = load_config(words.files, words.overrides, arguments.print_config ? Purpose::kPrint : Purpose::kRun);
  if (arguments.print_config) {
    print_line(describe_config(config));
    return 0;
  }
  if (arguments.address.rank > 0) return follow_as_rank(arguments, std::move(config));
  set_num_threads(threads_of_a_rank(config));
  preflight_of_run(config);
  TrainRun run(std::move(config), arguments.words);
  const RunSummary summary = run.run();
  print_line(describe_run(summary));
  return summary.interrupted ? 130 : 0;
}

}  // namespace

void add_train(CLI::App& app, Action& action) {
  auto* command = app.add_subcommand(
      "train",
      "train a policy with GRPO and its kin\n\n"
      "Words are YAML files and key=value overrides; keys are verl's (docs/config.md lists them).\n"
      "A run writes runs/<trainer.experiment_name>/: config.yaml, metrics.jsonl, samples.jsonl,\n"
      "tensorboard/, checkpoints/global_step_N. Started again, it resumes from the newest checkpoint.");
  auto arguments = std::make_shared<TrainArguments>();
  command->add_option("words", arguments->words, "FILE.yaml or key=value");
  command->add_flag("--print-config", arguments->print_config, "print the resolved configuration and stop");
  // How a run starts its other ranks; not for users.
  command->add_option("--rank", arguments->address.rank)->group("");
  command->add_option("--port", arguments->address.port)->group("");
  command->add_option("--role", arguments->address.role)->group("");
  command->add_option("--among", arguments->among)->group("");
  command->prefix_command(false);
  command->allow_extras(false);
  command->callback([&action, arguments] { action = [arguments] { return train(*arguments); }; });
}

}  // namespace tandem
