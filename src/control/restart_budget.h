// The circuit breaker: how often a group may be started anew within a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>

namespace tandem {

// Not thread-safe.
class RestartBudget {
 public:
  using Clock = std::chrono::steady_clock;
  RestartBudget(int64_t most, Clock::duration window) : most_(most), window_(window) {}

  // False: there were `most` within the window before `now` already.
  bool take(Clock::time_point now) {
    while (!taken_.empty() && now - taken_.front() > window_) taken_.pop_front();
    if (static_cast<int64_t>(taken_.size()) >= most_) return false;
    taken_.push_back(now);
    ++total_;
    return true;
  }
  int64_t total() const { return total_; }  // since the beginning

 private:
  int64_t most_, total_ = 0;
  Clock::duration window_;
  std::deque<Clock::time_point> taken_;
};

}  // namespace tandem
