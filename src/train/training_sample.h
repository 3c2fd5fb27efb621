// What an update knows of a response.
#pragma once

#include <vector>

#include "data/trajectory_store.h"

namespace tandem {

// Vectors hold one value a response token.
struct TrainingSample {
  TrajectoryPtr trajectory;
  double advantage = 0;                        // of every token, unless `advantages` are there
  std::vector<float> ref_logprobs = {};        // empty without a reference
  std::vector<double> advantages = {};         // empty: `advantage`
  std::vector<float> old_logprobs = {};        // of the weights before the update; empty: those of the sampling
  std::vector<float> importance_weights = {};  // empty: 1
  std::vector<uint8_t> mask = {};              // 1: counts in the loss; empty: the trajectory's
  std::vector<float> old_values = {};          // a critic's, before its update
  std::vector<double> returns = {};            // what a critic learns
};

// All that the store knows of a sample.
TrainingSample training_sample(const TrajectoryStore& store, const Sample& sample);

inline size_t num_tokens(const TrainingSample& sample) { return sample.trajectory->response_ids.size(); }

}  // namespace tandem
