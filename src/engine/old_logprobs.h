#pragma once

#include "data/trajectory_store.h"

namespace tandem {

// Log-probs of the weights before the update: the record's, else those of the sampling.
inline const std::vector<float>& old_logprobs(const Trajectory& trajectory, const TokenRecord& record) {
  return record.old_logprobs.empty() ? trajectory.rollout_logprobs : record.old_logprobs;
}

}  // namespace tandem
