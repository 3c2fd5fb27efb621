// trainer.*: how long to train, what to save and show, and on which device.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tandem {

struct TrainerConfig {
  int64_t total_epochs = 30;
  std::optional<int64_t> total_training_steps;
  std::string project_name = "verl_examples";
  std::string experiment_name = "gsm8k";
  std::string default_local_dir = "runs/${trainer.experiment_name}/checkpoints";
  std::vector<std::string> logger = {"console", "file", "tensorboard"};
  int64_t save_freq = -1;
  std::optional<int64_t> max_actor_ckpt_to_keep;
  int64_t critic_warmup = 0;
  std::string resume_mode = "auto";
  std::optional<std::string> resume_from_path;
  int64_t test_freq = -1;
  bool val_before_train = true;
  bool val_only = false;
  int64_t log_val_generations = 0;
  std::optional<std::string> rollout_data_dir;
  std::optional<std::string> validation_data_dir;
  int64_t nnodes = 1;
  int64_t n_gpus_per_node = 1;
  std::string device = "auto";
  int64_t num_threads = 0;
  int64_t seed = 42;

  template <class V>
  void fields(V&& v) {
    v("total_epochs", total_epochs, "passes over the training rows");
    v("total_training_steps", total_training_steps,
      "stop after this many steps, if total_epochs is not over before; null: no such limit");
    v("project_name", project_name, "name of the project in trackers");
    v("experiment_name", experiment_name, "name of the run");
    v("default_local_dir", default_local_dir, "folder of the run's checkpoints");
    v("logger", logger, "where metrics go: the terminal, metrics.jsonl, TensorBoard files",
      {"console", "file", "tensorboard"});
    v("save_freq", save_freq, "steps between checkpoints, the last step included; -1: none");
    v("max_actor_ckpt_to_keep", max_actor_ckpt_to_keep, "newest checkpoints kept; null: all");
    v("critic_warmup", critic_warmup, "first steps, in which the critic learns and the policy stays");
    v("resume_mode", resume_mode,
      "auto: from the newest checkpoint in default_local_dir, if any; disable: from the start; resume_path: from "
      "resume_from_path",
      {"auto", "disable", "resume_path"});
    v("resume_from_path", resume_from_path, "a folder global_step_N, for resume_mode=resume_path");
    v("test_freq", test_freq, "steps between validations, the last step included; -1: none");
    v("val_before_train", val_before_train, "validate before the first step");
    v("val_only", val_only, "validate and stop");
    v("log_val_generations", log_val_generations, "validation responses shown each time");
    v("rollout_data_dir", rollout_data_dir, "folder for each step's samples as JSON lines; null: not written");
    v("validation_data_dir", validation_data_dir, "the same for validation");
    v("nnodes", nnodes, "machines of the run");
    v("n_gpus_per_node", n_gpus_per_node, "devices of each machine");
    v("device", device, "auto: a GPU if there is one", {"auto", "cpu", "cuda"});
    v("num_threads", num_threads, "threads of the computation on CPU; 0: one a core");
    v("seed", seed, "seed of everything that has no seed of its own");
  }
};

}  // namespace tandem
