// trainer.*: how long to train, what to save and show, and on which device.
#pragma once

#include "config/communication_config.h"
#include "config/durability_config.h"
#include "config/preflight_config.h"
#include "config/run_config.h"

namespace tandem {

struct TrainerConfig : RunConfig {
  std::optional<int64_t> max_actor_ckpt_to_keep;
  int64_t critic_warmup = 0;
  bool val_before_train = true;
  bool val_only = false;
  int64_t log_val_generations = 0;
  std::optional<std::string> rollout_data_dir;
  std::optional<std::string> validation_data_dir;
  std::string nonfinite_update = "stop";
  JournalConfig journal;
  TrainerCheckpointConfig checkpoint;
  FaultConfig fault;
  std::string runtime = "local";
  RayConfig ray;
  CommunicationConfig communication;
  ResourcePoolsConfig resource_pools;
  PreflightConfig preflight;

  TrainerConfig() {
    total_epochs = 30;
    project_name = "verl_examples", experiment_name = "gsm8k";
  }

  template <class V>
  void fields(V&& v) {
    RunConfig::fields(v);
    v("save_freq", save_freq, "steps between checkpoints, the last step included; -1: none but when interrupted");
    v("max_actor_ckpt_to_keep", max_actor_ckpt_to_keep, "newest checkpoints kept; null: all");
    v("critic_warmup", critic_warmup, "first steps, in which the critic learns and the policy stays");
    v("test_freq", test_freq, "steps between validations, the last step included; -1: none");
    v("val_before_train", val_before_train, "validate before the first step");
    v("val_only", val_only, "validate and stop");
    v("log_val_generations", log_val_generations, "validation responses shown each time");
    v("rollout_data_dir", rollout_data_dir, "folder for each step's samples as JSON lines; null: not written");
    v("validation_data_dir", validation_data_dir, "the same for validation");
    v("nonfinite_update", nonfinite_update,
      "what to do when a loss or gradient is not finite: end the run, or leave that update out; the mini-batch is "
      "written to <run folder>/dumps in either case, for tandem replay",
      {"stop", "skip"});
    v("journal", journal, "finished samples on disk");
    v("checkpoint", checkpoint, "how and how often the state is saved");
    v("fault", fault, "what happens when a rank dies or hangs");
    v("runtime", runtime,
      "what the other ranks are: processes that this one starts and watches, threads of it, or actors of a Ray",
      {"local", "threads", "ray"});
    v("ray", ray, "the Ray of trainer.runtime=ray");
    v("communication", communication, "how ranks on several nodes reach each other");
    v("resource_pools", resource_pools, "which roles have processes of their own");
    v("preflight", preflight, "checks before anything is loaded");
  }
};

}  // namespace tandem
