// Wall-clock time by phase, for timing_s/<phase>.
#pragma once

#include <chrono>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "observe/metrics.h"

namespace tandem {

class TraceRecorder;

// Adds up, by name, the time during which at least one scope of that name was open: repeats add, a scope inside another
// of its own name adds nothing, and an outer scope includes the inner ones of other names. Thread-safe; outlives its
// scopes.
class PhaseTimer {
 public:
  using Clock = std::chrono::steady_clock;

  class Scope {
   public:
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    ~Scope() { timer_.leave(index_); }

   private:
    friend class PhaseTimer;
    Scope(PhaseTimer& timer, size_t index) : timer_(timer), index_(index) {}
    PhaseTimer& timer_;
    size_t index_;
  };

  // const auto gen = timer.scope("gen");   ends with the block, also by an exception
  [[nodiscard]] Scope scope(std::string_view name);

  double seconds(std::string_view name) const;  // 0 for a name never opened; an open scope counts up to now
  std::string open() const;                     // names of the phases that are open, outer ones first: "step, gen"
  void report(Metrics& metrics) const;          // timing_s/<name> of those opened since reset()
  void reset();                                 // for the next step; a scope still open counts from now

  // Phases are drawn into `trace` too, from the next that opens on; null: no longer. It outlives what is open then.
  void set_trace(TraceRecorder* trace);

 private:
  struct Phase {
    std::string name;
    double seconds = 0;
    int open = 0;
    Clock::time_point since;
    TraceRecorder* trace = nullptr;  // of when it opened
  };
  void leave(size_t index);
  static double seconds_of(const Phase& phase, Clock::time_point now);

  mutable std::mutex mutex_;
  std::vector<Phase> phases_;
  TraceRecorder* trace_ = nullptr;
};

}  // namespace tandem
