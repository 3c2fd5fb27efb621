#include "data/trajectory_store.h"

#include "base/error.h"

namespace tandem {

const char* to_string(StopReason reason) {
  switch (reason) {
    case StopReason::kEndOfText:
      return "eos";
    case StopReason::kStopToken:
      return "stop";
    case StopReason::kLength:
      return "length";
  }
  return "unknown";
}

TrajectoryHandle TrajectoryStore::put(TrajectoryPtr trajectory) {
  const std::lock_guard lock(mutex_);
  trajectories_.emplace(next_, std::move(trajectory));
  return next_++;
}

TrajectoryPtr TrajectoryStore::get(TrajectoryHandle handle) const {
  const std::lock_guard lock(mutex_);
  const auto found = trajectories_.find(handle);
  check(found != trajectories_.end(), "no trajectory with handle " + std::to_string(handle));
  return found->second;
}

void TrajectoryStore::put_ref_logprobs(TrajectoryHandle handle, std::vector<float> logprobs) {
  const std::lock_guard lock(mutex_);
  ref_logprobs_[handle] = std::move(logprobs);
}

std::vector<float> TrajectoryStore::ref_logprobs(TrajectoryHandle handle) const {
  const std::lock_guard lock(mutex_);
  const auto found = ref_logprobs_.find(handle);
  return found == ref_logprobs_.end() ? std::vector<float>{} : found->second;
}

void TrajectoryStore::clear() {
  const std::lock_guard lock(mutex_);
  trajectories_.clear();
  ref_logprobs_.clear();
}

size_t TrajectoryStore::size() const {
  const std::lock_guard lock(mutex_);
  return trajectories_.size();
}

}  // namespace tandem
