// What the trainer section of every kind of run holds.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tandem {

struct RunConfig {
  int64_t total_epochs = 1;
  std::optional<int64_t> total_training_steps;
  std::string project_name;
  std::string experiment_name;
  std::string default_local_dir = "runs/${trainer.experiment_name}/checkpoints";
  std::vector<std::string> logger = {"console", "file", "tensorboard"};
  int64_t save_freq = -1;
  int64_t test_freq = -1;
  std::string resume_mode = "auto";
  std::optional<std::string> resume_from_path;
  int64_t nnodes = 1;
  int64_t n_gpus_per_node = 1;
  std::string device = "auto";
  int64_t num_threads = 0;
  int64_t seed = 42;

  // save_freq and test_freq are described by each kind of run, which differ at -1.
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
    v("resume_mode", resume_mode,
      "auto: from the newest checkpoint in default_local_dir, if any; disable: from the start; resume_path: from "
      "resume_from_path",
      {"auto", "disable", "resume_path"});
    v("resume_from_path", resume_from_path, "a folder global_step_N, for resume_mode=resume_path");
    v("nnodes", nnodes, "machines of the run");
    v("n_gpus_per_node", n_gpus_per_node,
      "devices of each machine; on the CPU, processes that share the work (train only)");
    v("device", device, "auto: a GPU if there is one", {"auto", "cpu", "cuda"});
    v("num_threads", num_threads, "threads of the computation on CPU; 0: one a core");
    v("seed", seed, "seed of everything that has no seed of its own");
  }
};

}  // namespace tandem
