// The last steps' samples: in memory beside the state they led to, and as rollouts.bin in checkpoints (records of
// control/record_log.h).
#pragma once

#include <deque>
#include <filesystem>
#include <memory>
#include <vector>

#include "data/trajectory_store.h"

namespace tandem {

struct RolloutSample {
  TrajectoryPtr trajectory;
  double score = 0, reward = 0, advantage = 0;
};

struct Rollout {
  int64_t step = 0;  // counted from 1
  std::vector<RolloutSample> samples;
};

class RolloutBuffer {
 public:
  explicit RolloutBuffer(size_t most = 3) : most_(most) {}

  void add(int64_t step, const RolloutBatch& batch, const TrajectoryStore& store);
  // Oldest first. They are shared, not copied.
  const std::deque<std::shared_ptr<const Rollout>>& rollouts() const { return rollouts_; }
  void assign(std::deque<std::shared_ptr<const Rollout>> rollouts) { rollouts_ = std::move(rollouts); }

 private:
  size_t most_;
  std::deque<std::shared_ptr<const Rollout>> rollouts_;
};

void write_rollouts(const std::filesystem::path& path, const std::deque<std::shared_ptr<const Rollout>>& rollouts);
// Prompts come back with their ids and tokens only. IoError for a file that is damaged.
std::deque<std::shared_ptr<const Rollout>> read_rollouts(const std::filesystem::path& path);

}  // namespace tandem
