// A training run: builds every part from the configuration, resumes, steps, validates, saves, reports.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/chat.h"
#include "app/nonfinite.h"
#include "app/ranks.h"
#include "app/run_journal.h"
#include "app/run_saver.h"
#include "app/watch_run.h"
#include "checkpoint/manager.h"
#include "config/config.h"
#include "data/prompt_stream.h"
#include "observe/progress.h"
#include "observe/samples_log.h"
#include "observe/tracker.h"
#include "programs/program.h"

namespace tandem {

// What a run leaves for a closing summary.
struct RunSummary : RunEnd {
  std::vector<double> rewards;           // critic/score/mean by step
  std::vector<Metrics> validations;      // in time order; the first is from before training if asked for
  std::vector<Metric> seconds_by_phase;  // totals, without the prefix timing_s/
};

class TrainRun {
 public:
  // Everything that can be refused is refused here: configuration, model, data, reward function, memory. `words`: what
  // `tandem train` would be called with for this configuration; a run of several ranks starts the others so.
  explicit TrainRun(Config config, const std::vector<std::string>& words = {});

  RunSummary run();

 private:
  Roles roles();  // makes token_advantages_
  void resume();
  void steps();
  void one_step();
  Metrics validate(int64_t step);
  Progressed progressed() const;
  EngineOptions guarded_engine_options();
  CriticOptions guarded_critic_options();
  std::optional<int64_t> open_journal(bool from_checkpoint);
  void finish_step(const StepResult& result, double seconds);
  void write_samples(int64_t step, const RolloutBatch& batch);
  bool due(int64_t every) const;

  Config config_;
  std::filesystem::path folder_;
  Chat chat_;
  PromptDataset train_data_;
  std::optional<PromptDataset> validation_data_;
  int64_t total_steps_ = 0, step_ = 0;
  WatchedRun watched_;
  Progress progress_;
  PhaseTimer timer_;
  std::shared_ptr<TrajectoryStore> store_;
  std::optional<Journal> journal_;  // opened by resume()
  NonFiniteGuard guard_;
  std::optional<RankProcesses> ranks_;  // ends after the engine, which dismisses them
  WorkerGroup<Engine> actor_;
  WorkerGroup<RewardWorker> reward_;
  std::optional<WorkerGroup<Reference>> reference_;
  std::optional<WorkerGroup<Critic>> critic_;
  std::optional<WorkerGroup<TokenAdvantages>> token_advantages_;
  std::unique_ptr<Program> program_;
  CheckpointManager checkpoints_;
  RolloutBuffer rollouts_;
  RunSaver saver_;
  std::optional<PromptStream> prompts_;
  std::optional<Tracker> tracker_;
  std::optional<SamplesLog> samples_;
  RunSummary summary_;
};

}  // namespace tandem
