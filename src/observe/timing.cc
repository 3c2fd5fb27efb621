#include "observe/timing.h"

#include <algorithm>

#include "observe/trace.h"

namespace tandem {
namespace {

double seconds_between(PhaseTimer::Clock::time_point from, PhaseTimer::Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace

PhaseTimer::Scope PhaseTimer::scope(std::string_view name) {
  const std::lock_guard lock(mutex_);
  auto phase = std::find_if(phases_.begin(), phases_.end(), [&](const Phase& p) { return p.name == name; });
  if (phase == phases_.end()) phase = phases_.insert(phases_.end(), Phase{std::string(name), 0, 0, {}, nullptr});
  if (phase->open++ == 0) {
    phase->since = Clock::now();
    phase->trace = trace_;
    if (trace_ != nullptr) trace_->open(name, phase->since);
  }
  return Scope(*this, static_cast<size_t>(phase - phases_.begin()));
}

void PhaseTimer::leave(size_t index) {
  const auto now = Clock::now();
  const std::lock_guard lock(mutex_);
  Phase& phase = phases_[index];
  if (--phase.open > 0) return;
  phase.seconds += seconds_between(phase.since, now);
  if (phase.trace != nullptr) phase.trace->close(phase.name, now);
}

double PhaseTimer::seconds_of(const Phase& phase, Clock::time_point now) {
  return phase.seconds + (phase.open > 0 ? seconds_between(phase.since, now) : 0.0);
}

double PhaseTimer::seconds(std::string_view name) const {
  const std::lock_guard lock(mutex_);
  for (const Phase& phase : phases_)
    if (phase.name == name) return seconds_of(phase, Clock::now());
  return 0;
}

std::string PhaseTimer::open() const {
  const std::lock_guard lock(mutex_);
  std::string names;
  for (const Phase& phase : phases_)
    if (phase.open > 0) names += (names.empty() ? "" : ", ") + phase.name;
  return names;
}

void PhaseTimer::report(Metrics& metrics) const {
  const std::lock_guard lock(mutex_);
  const auto now = Clock::now();
  for (const Phase& phase : phases_) {
    const double seconds = seconds_of(phase, now);
    if (phase.open > 0 || seconds > 0) metrics.set("timing_s/" + phase.name, seconds);
  }
}

void PhaseTimer::set_trace(TraceRecorder* trace) {
  const std::lock_guard lock(mutex_);
  trace_ = trace;
}

void PhaseTimer::reset() {
  const std::lock_guard lock(mutex_);
  const auto now = Clock::now();
  // The phases stay: open scopes know theirs by index.
  for (Phase& phase : phases_) {
    phase.seconds = 0;
    phase.since = now;
  }
}

}  // namespace tandem
