#include "reward/reward_worker.h"

namespace tandem {

ScoredBatch RewardWorker::score(const RolloutBatch& batch) {
  std::vector<RewardRequest> requests;
  for (const Sample& sample : batch) {
    const TrajectoryPtr trajectory = store_->get(sample.handle);
    const Prompt& prompt = *trajectory->prompt;
    requests.push_back({prompt.data_source, tokenizer_.decode(trajectory->response_ids), prompt.ground_truth,
                        prompt.extra_info, sample.stop_reason != StopReason::kLength, prompt.id, sample.sample_index});
  }
  const std::vector<RewardResult> results = function_->score(requests);
  ScoredBatch scored{batch, {}};
  for (size_t i = 0; i < batch.size(); ++i) {
    Sample& sample = scored.samples[i];
    sample.score = results[i].score;
    sample.reward = sample.score + overlong_penalty(overlong_, sample.response_length);
    scored.extras.push_back(results[i].extra);
  }
  return scored;
}

}  // namespace tandem
