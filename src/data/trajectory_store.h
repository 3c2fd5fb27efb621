// Where token-level data lives between the phases of a step. Thread-safe.
#pragma once

#include <map>
#include <mutex>
#include <vector>

#include "data/types.h"

namespace tandem {

using TrajectoryPtr = std::shared_ptr<const Trajectory>;

// What later passes say of a response's tokens, one value a token. Empty where nobody asked.
struct TokenRecord {
  std::vector<float> ref_logprobs;          // of the reference model
  std::vector<float> old_logprobs;          // of the weights before the update; empty: those of the sampling
  std::vector<float> importance_weights;    // rollout correction, constant in the loss
  std::vector<uint8_t> mask;                // 1: counts in the loss; empty: Trajectory::response_mask
  std::vector<float> values;                // of the critic, in the state before the token
  std::vector<float> sum_squared_probs;     // Σ over the vocabulary of the squared probability at the token
  std::vector<double> advantages, returns;  // of estimators that work token by token
};

class TrajectoryStore {
 public:
  TrajectoryHandle put(TrajectoryPtr trajectory);
  TrajectoryPtr get(TrajectoryHandle handle) const;  // an unknown handle is an internal error
  // store.set(handle, &TokenRecord::values, ...)
  template <class T>
  void set(TrajectoryHandle handle, std::vector<T> TokenRecord::*field, std::vector<T> tokens) {
    const std::lock_guard lock(mutex_);
    records_[handle].*field = std::move(tokens);
  }
  TokenRecord record(TrajectoryHandle handle) const;  // empty fields where nothing was set
  void clear();
  size_t size() const;

 private:
  mutable std::mutex mutex_;
  std::map<TrajectoryHandle, TrajectoryPtr> trajectories_;
  std::map<TrajectoryHandle, TokenRecord> records_;
  TrajectoryHandle next_ = 1;
};

// 1 for each response token that counts in the loss: `later` if any (a record's or a training sample's), else the
// trajectory's own, else all.
std::vector<uint8_t> token_mask(const Trajectory& trajectory, const std::vector<uint8_t>& later = {});
// Log-probs of the weights before the update: `later` if any, else those of the sampling.
const std::vector<float>& old_logprobs(const Trajectory& trajectory, const std::vector<float>& later);
uint32_t trained_length(const std::vector<uint8_t>& mask);  // how many count

}  // namespace tandem
