// The reward role: responses become text, text becomes scores, scores become rewards.
#pragma once

#include <memory>

#include "data/trajectory_store.h"
#include "reward/overlong.h"
#include "reward/reward.h"
#include "text/tokenizer.h"

namespace tandem {

// A scored batch, and the further numbers the reward function gave each sample (in the batch's order).
struct ScoredBatch {
  RolloutBatch samples;
  std::vector<std::vector<std::pair<std::string, double>>> extras;
};

class RewardWorker {
 public:
  // `tokenizer` must outlive it.
  RewardWorker(std::unique_ptr<RewardFunction> function, std::shared_ptr<const TrajectoryStore> store,
               const Tokenizer& tokenizer, const OverlongOptions& overlong)
      : function_(std::move(function)), store_(std::move(store)), tokenizer_(tokenizer), overlong_(overlong) {}

  // Sets score and reward of each sample. DataError as RewardFunction::score.
  ScoredBatch score(const RolloutBatch& batch);

 private:
  std::unique_ptr<RewardFunction> function_;
  std::shared_ptr<const TrajectoryStore> store_;
  const Tokenizer& tokenizer_;
  OverlongOptions overlong_;
};

}  // namespace tandem
