#include "checkpoint/write_pace.h"

#include <algorithm>
#include <thread>

namespace tandem {

void WritePace::before_writing(uint64_t bytes) {
  Clock::time_point turn;
  {
    const std::lock_guard lock(mutex_);
    bytes_ += bytes;
    if (!bounded()) return;
    turn = std::max(Clock::now(), free_at_);
    const std::chrono::duration<double> taken(static_cast<double>(bytes) / max_bytes_per_s_);
    free_at_ = turn + std::chrono::duration_cast<Clock::duration>(taken);
  }
  std::this_thread::sleep_until(turn);
}

uint64_t WritePace::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

}  // namespace tandem
