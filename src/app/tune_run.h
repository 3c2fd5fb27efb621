// A run of `tandem sft` or `tandem reward-model`: builds every part from the configuration, resumes, steps, validates,
// saves, reports.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/chat.h"
#include "app/checkpoint_writer.h"
#include "app/watch_run.h"
#include "checkpoint/manager.h"
#include "config/tuning_config.h"
#include "data/tuning_set.h"
#include "engine/tuner.h"
#include "observe/progress.h"
#include "observe/timing.h"
#include "observe/tracker.h"

namespace tandem {

enum class TuningTask { kSupervised, kPreference };

struct TuneSummary : RunEnd {
  std::vector<double> losses;  // train/loss by step
  std::optional<Metrics> validation;
};

class TuneRun {
 public:
  // Everything that can be refused is refused here: configuration, model, data.
  TuneRun(TuningConfig config, TuningTask task);

  TuneSummary run();

 private:
  void resume();
  void steps();
  void one_step();
  TuningBatch batch_of(int64_t step) const;
  // `log` writes the step's metrics, before a checkpoint of the step can stand.
  void save(const std::function<void()>& log);
  void take_reports();
  bool due(int64_t every) const;

  TuningConfig config_;
  std::filesystem::path folder_;
  Chat chat_;
  TuningSet train_;
  std::optional<TuningSet> validation_;
  int64_t total_steps_ = 0, step_ = 0, saved_step_ = 0;
  WatchedRun watched_;
  Progress progress_;
  PhaseTimer timer_;
  std::string order_;  // data.json of every checkpoint
  std::unique_ptr<Tuner> tuner_;
  CheckpointManager checkpoints_;
  std::optional<Tracker> tracker_;
  ModelStateCopy copy_;      // what is being written
  bool copies_ = true;       // false: the step waits for the disk
  CheckpointWriter writer_;  // its thread uses the members above
  Metrics save_metrics_;     // of saves that ended, not yet logged
  std::string save_error_;   // of the last save; empty: it went well
  TuneSummary summary_;
};

}  // namespace tandem
