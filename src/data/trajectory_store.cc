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

TokenRecord TrajectoryStore::record(TrajectoryHandle handle) const {
  const std::lock_guard lock(mutex_);
  const auto found = records_.find(handle);
  return found == records_.end() ? TokenRecord{} : found->second;
}

void TrajectoryStore::clear() {
  const std::lock_guard lock(mutex_);
  trajectories_.clear();
  records_.clear();
}

size_t TrajectoryStore::size() const {
  const std::lock_guard lock(mutex_);
  return trajectories_.size();
}

std::vector<uint8_t> token_mask(const Trajectory& trajectory, const std::vector<uint8_t>& later) {
  std::vector<uint8_t> mask = later.empty() ? trajectory.response_mask : later;
  if (mask.empty()) mask.assign(trajectory.response_ids.size(), 1);
  check(mask.size() == trajectory.response_ids.size(), "a response mask has another length than its response");
  return mask;
}

const std::vector<float>& old_logprobs(const Trajectory& trajectory, const std::vector<float>& later) {
  return later.empty() ? trajectory.rollout_logprobs : later;
}

uint32_t trained_length(const std::vector<uint8_t>& mask) {
  uint32_t count = 0;
  for (const uint8_t counts : mask) count += counts != 0 ? 1 : 0;
  return count;
}

}  // namespace tandem
