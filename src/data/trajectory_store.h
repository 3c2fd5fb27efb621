// Where token-level data lives between the phases of a step. Thread-safe.
#pragma once

#include <map>
#include <mutex>
#include <vector>

#include "data/types.h"

namespace tandem {

using TrajectoryPtr = std::shared_ptr<const Trajectory>;

class TrajectoryStore {
 public:
  TrajectoryHandle put(TrajectoryPtr trajectory);
  TrajectoryPtr get(TrajectoryHandle handle) const;  // an unknown handle is an internal error
  // What the reference model says of its tokens; empty where it was not asked.
  void put_ref_logprobs(TrajectoryHandle handle, std::vector<float> logprobs);
  std::vector<float> ref_logprobs(TrajectoryHandle handle) const;
  void clear();
  size_t size() const;

 private:
  mutable std::mutex mutex_;
  std::map<TrajectoryHandle, TrajectoryPtr> trajectories_;
  std::map<TrajectoryHandle, std::vector<float>> ref_logprobs_;
  TrajectoryHandle next_ = 1;
};

}  // namespace tandem
