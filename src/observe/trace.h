// What happened when within a step, in the Chrome trace format that Perfetto and chrome://tracing read. A recorder
// exists only for steps that are traced; elsewhere a null pointer is all there is.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "observe/metrics.h"

namespace tandem {

// Thread-safe. One process of the trace is a rank, its threads are lanes; all times are microseconds since the recorder
// was made, so that ranks that share the steady clock (those of one machine) share one axis.
class TraceRecorder {
 public:
  using Clock = std::chrono::steady_clock;
  explicit TraceRecorder(int64_t step) : step_(step), start_(Clock::now()) {}

  // Phases; one may lie within another.
  void open(std::string_view phase, Clock::time_point at);
  void close(std::string_view phase, Clock::time_point at);

  void span(std::string_view lane, std::string_view name, Clock::time_point begin, Clock::time_point end,
            const Metrics& arguments = {}, int rank = 0);

  // A piece of work of the innermost open phase is done: in sampling a response, elsewhere a micro-batch, which began
  // when the one before it ended.
  void work_done(int64_t tokens, int rank = 0);

  // IoError. Phases still open end now.
  void write(const std::filesystem::path& path) const;

 private:
  struct Event {
    std::string lane, name;
    Clock::time_point begin, end;
    Metrics arguments;
    int rank = 0;
    bool instant = false;
  };
  struct Open {
    std::string phase;
    Clock::time_point since, last_work;
  };
  std::string as_json(Clock::time_point now) const;

  const int64_t step_;
  const Clock::time_point start_;
  mutable std::mutex mutex_;
  std::vector<Event> events_;
  std::vector<Open> open_;
};

}  // namespace tandem
