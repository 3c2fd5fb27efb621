#include "train/training_sample.h"

namespace tandem {

TrainingSample training_sample(const TrajectoryStore& store, const Sample& sample) {
  TokenRecord record = store.record(sample.handle);
  TrainingSample out;
  out.trajectory = store.get(sample.handle);
  out.advantage = sample.advantage;
  out.ref_logprobs = std::move(record.ref_logprobs);
  out.advantages = std::move(record.advantages);
  out.old_logprobs = std::move(record.old_logprobs);
  out.importance_weights = std::move(record.importance_weights);
  out.mask = std::move(record.mask);
  out.old_values = std::move(record.values);
  out.returns = std::move(record.returns);
  return out;
}

}  // namespace tandem
