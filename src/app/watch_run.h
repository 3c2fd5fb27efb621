// What lets a run be watched: its log, its dashboard, traces of single steps.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "config/run_config.h"
#include "dashboard/server.h"
#include "observe/run_log.h"
#include "observe/timing.h"
#include "observe/trace.h"
#include "rollout/generator.h"

namespace tandem {

// By the tokenizer in a model's folder (actor_rollout_ref.model.path of a run); each is read once.
TokenTexts tokenizer_texts();

// A pass of the sampling in the trace of a step, if there is one.
void record_pass(const TraceSlot& trace, const GeneratorPass& pass);

// How a run ended.
struct RunEnd {
  std::filesystem::path folder, last_checkpoint;
  int64_t last_step = 0;
  bool interrupted = false;
};

class WatchedRun {
 public:
  // The dashboard listens from here on, so that a port that is taken is refused before long work; it shows `folder`.
  WatchedRun(const RunConfig& config, std::filesystem::path folder);

  // The course of every run: `resume` sets `step`, then `steps` brings it to `total_steps` unless it is interrupted;
  // its warnings, errors and exceptions are lines of the log. Fills all of `end` but the checkpoint.
  void run(RunEnd& end, const int64_t& step, int64_t total_steps, const std::function<void()>& resume,
           const std::function<void()>& steps);

  // Around a step, counted from 1.
  void begin_step(int64_t step, PhaseTimer& timer);
  void end_step(PhaseTimer& timer);  // a trace that cannot be written costs a warning

  // The recorder of this step, null where it is not traced.
  TraceRecorder* recorder() const { return trace_.get(); }

  void work_done(int64_t tokens) {
    if (trace_) trace_->work_done(tokens);
  }

  // Where the recorder of a traced step lies; null where no step is to be traced.
  const std::shared_ptr<TraceSlot>& trace() const { return slot_; }

 private:
  void open_log(int64_t step);

  const std::filesystem::path folder_;
  const std::vector<int64_t> traced_steps_;
  std::unique_ptr<Dashboard> dashboard_;
  std::unique_ptr<RunLog> log_;
  int64_t step_ = 0;
  std::shared_ptr<TraceRecorder> trace_;  // null in steps that are not traced
  std::shared_ptr<TraceSlot> slot_;       // holds it too
};

}  // namespace tandem
