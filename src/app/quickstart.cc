// tandem quickstart: a real model learns sums (or the user's GSM8K file) in a few minutes on a laptop's CPU.
#include <fmt/format.h>

#include <algorithm>

#include "app/command.h"
#include "app/ranks.h"
#include "app/run_summary.h"
#include "app/train_run.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "config/load.h"
#include "data/prepare.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

struct QuickstartArguments {
  std::string model, task = "arithmetic", data;
  std::string out = "runs";
  int64_t seed = 1;
  std::vector<std::string> overrides;
};

std::vector<std::string> common_settings(const QuickstartArguments& a, const std::string& name, const fs::path& data) {
  return {
      "actor_rollout_ref.model.path=" + a.model,
      "data.train_files=" + (data / "train.parquet").string(),
      "data.val_files=" + (data / "test.parquet").string(),
      "trainer.experiment_name=" + name,
      "trainer.default_local_dir=" + (fs::path(a.out) / name / "checkpoints").string(),
      "trainer.project_name=tandem",
      "trainer.resume_mode=disable",
      "trainer.logger=[file,tensorboard]",
      fmt::format("trainer.seed={}", a.seed),
      fmt::format("actor_rollout_ref.rollout.seed={}", a.seed),
      "actor_rollout_ref.rollout.n=8",
      "actor_rollout_ref.actor.optim.betas=[0.9,0.99]",
      "actor_rollout_ref.actor.optim.weight_decay=0",
      "algorithm.adv_estimator=grpo",
  };
}

std::vector<std::string> arithmetic_settings() {
  return {"data.train_batch_size=8",
          "data.max_prompt_length=96",
          "data.max_response_length=4",
          "actor_rollout_ref.actor.ppo_mini_batch_size=8",
          "actor_rollout_ref.actor.optim.lr=1e-5",
          "reward.rule=exact",
          "trainer.total_training_steps=20",
          "trainer.test_freq=20",
          "trainer.save_freq=20"};
}

std::vector<std::string> gsm8k_settings() {
  return {"data.train_batch_size=4",
          "data.max_prompt_length=320",
          "data.max_response_length=192",
          "data.filter_overlong_prompts=True",
          "data.val_max_samples=16",
          "actor_rollout_ref.actor.ppo_mini_batch_size=4",
          "actor_rollout_ref.actor.optim.lr=5e-6",
          "reward.rule=gsm8k_flexible",
          "trainer.total_training_steps=10",
          "trainer.test_freq=10",
          "trainer.save_freq=10"};
}

// The last tenth of a file's lines is held out for validation.
void split_lines(const fs::path& file, const fs::path& train, const fs::path& test) {
  const std::string text = read_file(file);
  const auto lines = static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
  if (lines < 10)
    throw DataError(file.string() + " has too few lines to hold some out; give a folder with a train and a test file");
  size_t cut = 0;
  for (size_t i = 0; i < lines - lines / 10; ++i) cut = text.find('\n', cut) + 1;
  write_file_atomic(train, std::string_view(text).substr(0, cut));
  write_file_atomic(test, std::string_view(text).substr(cut));
}

fs::path prepare(const QuickstartArguments& a, const fs::path& folder) {
  if (a.task == "arithmetic") {
    prepare_arithmetic({folder, static_cast<uint64_t>(a.seed), 16});
    return folder;
  }
  if (a.data.empty()) throw ConfigError("--task gsm8k needs the data: quickstart --task gsm8k FILE.jsonl, or a folder");
  PrepareOptions options;
  options.local_save_dir = folder;
  if (fs::is_directory(a.data)) {
    options.local_dataset_path = a.data;
  } else {
    fs::create_directories(folder);
    options.train_file = folder / "train.jsonl";
    options.test_file = folder / "test.jsonl";
    split_lines(a.data, options.train_file, options.test_file);
  }
  prepare_dataset("gsm8k", options);
  return folder;
}

int quickstart(const QuickstartArguments& a) {
  const std::string name = fmt::format("quickstart-{}", a.task);
  const fs::path data = prepare(a, fs::path(a.out) / name / "data");
  std::vector<std::string> settings = common_settings(a, name, data);
  for (auto& setting : a.task == "arithmetic" ? arithmetic_settings() : gsm8k_settings()) settings.push_back(setting);
  settings.insert(settings.end(), a.overrides.begin(), a.overrides.end());
  Config config = load_config({}, settings);
  set_num_threads(threads_of_a_rank(config));
  TrainRun run(std::move(config), settings);
  const RunSummary summary = run.run();
  print_line(describe_run(summary));
  if (const fs::path actor = summary.last_checkpoint / "actor"; !summary.last_checkpoint.empty()) {
    const fs::path adapter = actor / "lora_adapter", whole = actor / "huggingface";
    print_line("talk to it:  tandem generate " +
               (fs::exists(adapter) ? a.model + " --adapter " + adapter.string() : whole.string()));
  }
  return summary.interrupted ? 130 : 0;
}

}  // namespace

void add_quickstart(CLI::App& app, Action& action) {
  auto* command = app.add_subcommand("quickstart", "train a small model on this machine and see it learn");
  auto a = std::make_shared<QuickstartArguments>();
  command->add_option("--model", a->model, "folder of a small chat model")->required();
  command->add_option("--task", a->task, "what to learn")
      ->check(CLI::IsMember({"arithmetic", "gsm8k"}))
      ->capture_default_str();
  command->add_option("--out", a->out, "where the run's folder goes")->capture_default_str();
  command->add_option("--seed", a->seed, "seed of data and sampling")->capture_default_str();
  command->add_option("words", a->overrides, "the GSM8K file (for --task gsm8k), and key=value overrides");
  command->callback([&action, a] {
    if (!a->overrides.empty() && a->overrides.front().find('=') == std::string::npos) {
      a->data = a->overrides.front();
      a->overrides.erase(a->overrides.begin());
    }
    action = [a] { return quickstart(*a); };
  });
}

}  // namespace tandem
