// Where the metrics of a step go: trainer.logger of verl. Errors: ConfigError for an unknown name, IoError for files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "observe/backlog.h"
#include "observe/metrics.h"

namespace tandem {

class MetricSink {
 public:
  virtual ~MetricSink() = default;
  virtual void log(int64_t step, const Metrics& metrics) = 0;  // on disk or terminal when it returns
};

// Hands every step to each of its sinks. What a sink cannot write (IoError) waits for its next step. Not thread-safe.
class Tracker {
 public:
  explicit Tracker(std::vector<std::unique_ptr<MetricSink>> sinks);
  void log(int64_t step, const Metrics& metrics);

 private:
  struct Line {
    int64_t step;
    Metrics metrics;
  };
  struct Output {
    std::unique_ptr<MetricSink> sink;
    Backlog<Line> waiting;
  };
  std::vector<Output> outputs_;
};

// The console's line: "step:3 - actor/pg_loss:0.0125 - ...", whole numbers in full, others to six digits.
std::string console_line(int64_t step, const Metrics& metrics);

struct TrackerOptions {
  std::vector<std::string> names;  // a name listed twice counts once
  std::filesystem::path run_folder;
  std::string project, experiment;
  std::vector<std::pair<std::string, std::string>> config;  // what services show of the run
  std::optional<int64_t> resume_step;  // the last step that the resumed run keeps; absent: nothing is dropped
};

// console      console_line() on stdout
// file         run_folder/metrics.jsonl, one flat object a step (observe/metrics.h, to_json)
// tensorboard  an event file in $TENSORBOARD_DIR, else in run_folder/tensorboard/<project>/<experiment>
// wandb, mlflow, swanlab, trackio   by their Python packages (observe/bridge.h); metrics.jsonl is written even if
//              "file" is not listed
// What the file and tensorboard hold of steps after resume_step is dropped (TensorBoard is told by a session start
// event, as torch's SummaryWriter(purge_step) does).
Tracker make_tracker(const TrackerOptions& options);

}  // namespace tandem
