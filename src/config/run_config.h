// What the trainer section of every kind of run holds.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tandem {

struct DashboardConfig {
  std::optional<int64_t> port;
  std::string host = "127.0.0.1";

  template <class V>
  void fields(V&& v) {
    v("port", port, "the run serves its own dashboard there; 0: any free port; null: no dashboard");
    v("host", host, "address to listen on; 0.0.0.0: everyone who reaches this machine may look");
  }
};

struct ProfileConfig {
  std::vector<int64_t> steps;

  template <class V>
  void fields(V&& v) {
    v("steps", steps, "steps of which trace_step_N.json is written, for the dashboard or ui.perfetto.dev");
  }
};

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
  std::optional<double> peak_tflops;
  int64_t seed = 42;
  DashboardConfig dashboard;
  ProfileConfig profile;

  // save_freq and test_freq are described by each kind of run, which differ at -1.
  template <class V>
  void fields(V&& v) {
    v("total_epochs", total_epochs, "passes over the training rows");
    v("total_training_steps", total_training_steps,
      "stop after this many steps, if total_epochs is not over before; null: no such limit");
    v("project_name", project_name, "name of the project in trackers");
    v("experiment_name", experiment_name, "name of the run");
    v("default_local_dir", default_local_dir, "folder of the run's checkpoints");
    v("logger", logger,
      "where metrics go: the terminal, metrics.jsonl, TensorBoard files, services by their Python packages",
      {"console", "file", "tensorboard", "wandb", "mlflow", "swanlab", "trackio"});
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
    v("peak_tflops", peak_tflops,
      "what a device can reach, in TFLOP/s, of which perf/mfu/* is the share; null: by the GPU's name, on the CPU as "
      "measured at the start; 0: no such metrics");
    v("seed", seed, "seed of everything that has no seed of its own");
    v("dashboard", dashboard, "a page that shows the run while it runs");
    v("profile", profile, "traces of single steps");
  }
};

}  // namespace tandem
