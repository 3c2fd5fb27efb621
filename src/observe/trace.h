// What happened when within a step, in the Chrome trace format that Perfetto and chrome://tracing read. A recorder
// exists only for steps that are traced; elsewhere a null pointer is all there is.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "observe/metrics.h"

namespace tandem {

// Thread-safe. One process of the trace is a rank, its threads are lanes; all times are microseconds since `start`, so
// that ranks that share the steady clock (those of one machine) share one axis.
class TraceRecorder {
 public:
  using Clock = std::chrono::steady_clock;
  explicit TraceRecorder(int64_t step, Clock::time_point start = Clock::now(), int rank = 0)
      : step_(step), start_(start), rank_(rank) {}

  int64_t step() const { return step_; }
  Clock::time_point start() const { return start_; }

  // Phases; one may lie within another.
  void open(std::string_view phase, Clock::time_point at);
  void close(std::string_view phase, Clock::time_point at);

  void span(std::string_view lane, std::string_view name, Clock::time_point begin, Clock::time_point end,
            const Metrics& arguments = {});

  // A piece of work of the innermost open phase is done: in sampling a response, elsewhere a micro-batch, which began
  // when the one before it ended.
  void work_done(int64_t tokens);

  // What another rank's recorder has, as text; phases still open end now.
  std::string events() const;
  void add_events(std::string events);  // another rank's

  // IoError. Phases still open end now.
  void write(const std::filesystem::path& path) const;

 private:
  struct Event {
    std::string lane, name;
    Clock::time_point begin, end;
    Metrics arguments;
    bool instant = false;
  };
  struct Open {
    std::string phase;
    Clock::time_point since, last_work;
  };
  void append_event(std::string& out, const Event& event, size_t lane) const;

  const int64_t step_;
  const Clock::time_point start_;
  const int rank_;
  mutable std::mutex mutex_;
  std::vector<std::string> other_ranks_;
  std::vector<Event> events_;
  std::vector<Open> open_;
};

// Where the recorder of a step that is traced lies for those that record from elsewhere; empty between such steps.
// Thread-safe.
class TraceSlot {
 public:
  void set(std::shared_ptr<TraceRecorder> recorder) {
    const std::lock_guard lock(mutex_);
    recorder_ = std::move(recorder);
  }
  std::shared_ptr<TraceRecorder> get() const {
    const std::lock_guard lock(mutex_);
    return recorder_;
  }

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<TraceRecorder> recorder_;
};

}  // namespace tandem
