// A training run: builds every part from the configuration, resumes, steps, validates, saves, reports. Where a rank is
// lost, the attempt with all its parts is made anew from the newest state, and the steps since then are made again.
#pragma once

#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/attempt.h"
#include "app/chat.h"
#include "app/nonfinite.h"
#include "app/run_journal.h"
#include "app/run_saver.h"
#include "app/watch_run.h"
#include "app/worker_file.h"
#include "checkpoint/manager.h"
#include "config/config.h"
#include "control/batch_size.h"
#include "control/restart_budget.h"
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
  using Clock = std::chrono::steady_clock;

  void resume();
  void take(const Progressed& progressed);
  void open_journal();
  std::optional<int64_t> kept_records(bool from_checkpoint);
  void run_on();
  void steps();
  void one_step();
  Metrics validate(int64_t step);
  Progressed progressed() const;
  int64_t prompts_of_next_step();
  void observe_rollout(const RolloutBatch& batch, Metrics& metrics);
  std::string doing() const;  // any thread
  void finish_step(const StepResult& result, double seconds);
  Metrics step_metrics(const StepResult& result, double seconds);
  void write_samples(int64_t step, const RolloutBatch& batch);
  bool due(int64_t every) const;

  AttemptContext context();
  void recover(std::string cause);
  std::optional<std::string> rebuilt(const std::vector<int>& ranks);
  void rebuild(const std::vector<int>& ranks);
  void restore();
  void use_ranks(std::vector<int> ranks);
  void open_records_after(std::optional<int64_t> kept);
  [[noreturn]] void give_up(const std::string& cause, const std::string& why);
  std::vector<int> go_on_without(const std::vector<int>& ranks, const std::string& cause) const;
  bool misses_ranks() const;
  void look_for_ranks();
  void take_back_ranks();

  // What is written already, and stays: steps that are made again write nothing.
  struct Written {
    int64_t samples = 0, metrics = 0;  // the last step
    std::vector<int> ranks;            // that made it
  };

  Config config_;
  Config group_config_;     // the same on the ranks that are there
  std::vector<int> ranks_;  // their numbers; empty: all
  std::vector<std::string> words_;
  std::filesystem::path folder_;
  Chat chat_;
  PromptDataset train_data_;
  std::optional<PromptDataset> validation_data_;
  int64_t total_steps_ = 0, step_ = 0;
  WatchedRun watched_;
  Progress progress_;
  PhaseTimer timer_;
  Breakpoints breakpoints_;
  std::shared_ptr<InFlight> in_flight_ = std::make_shared<InFlight>();
  std::shared_ptr<TrajectoryStore> store_;
  std::optional<Journal> journal_;  // opened by resume()
  NonFiniteGuard guard_;
  WorkerGroup<RewardWorker> reward_;
  std::unique_ptr<Runtime> runtime_;
  std::optional<WorkerFile> worker_file_;
  std::optional<Attempt> attempt_;
  CheckpointManager checkpoints_;
  RolloutBuffer rollouts_;
  RunSaver saver_;
  std::optional<Checkpoint> resumed_from_;
  std::optional<PromptStream> prompts_;
  std::optional<BatchSize> batch_size_;  // where it may change
  std::optional<Tracker> tracker_;
  std::optional<SamplesLog> samples_;
  Written written_;
  std::optional<double> peak_tflops_;  // of all ranks; nothing: not known
  RestartBudget restarts_;
  std::optional<Clock::time_point> recovering_since_;  // until the run is where it was
  double recovery_seconds_ = 0;                        // not yet reported
  Clock::time_point next_look_;                        // whether missing ranks can come back
  std::future<bool> can_come_back_;
  RunSummary summary_;
};

}  // namespace tandem
