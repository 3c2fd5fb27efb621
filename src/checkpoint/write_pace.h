// Bounds and counts what is written to a storage.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>

namespace tandem {

// Thread-safe: several writers share the bound.
class WritePace {
 public:
  explicit WritePace(double max_bytes_per_s = 0) : max_bytes_per_s_(max_bytes_per_s) {}  // 0: none

  void before_writing(uint64_t bytes);  // waits until they may go
  uint64_t bytes() const;               // so far
  bool bounded() const { return max_bytes_per_s_ > 0; }

 private:
  using Clock = std::chrono::steady_clock;
  const double max_bytes_per_s_;
  mutable std::mutex mutex_;
  Clock::time_point free_at_;
  uint64_t bytes_ = 0;
};

}  // namespace tandem
