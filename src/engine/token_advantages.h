// The role that estimates advantages token by token. One worker: whitening looks at the whole batch.
#pragma once

#include <memory>

#include "data/trajectory_store.h"
#include "observe/metrics.h"
#include "train/loss.h"
#include "train/token_advantage.h"

namespace tandem {

struct TokenAdvantageRequest {
  RolloutBatch samples;
  double kl_coef = 0;  // of KL in the reward; 0: none
};

struct TokenAdvantageResult {
  RolloutBatch samples;
  Metrics metrics;  // critic/{advantages,returns,values} over trained tokens, critic/vf_explained_var
};

class TokenAdvantages {
 public:
  // `kl_type`: of KL in the reward.
  TokenAdvantages(TokenAdvantageOptions options, KlType kl_type, std::shared_ptr<TrajectoryStore> store)
      : options_(options), kl_type_(kl_type), store_(std::move(store)) {}

  // A sample's reward lies on its last trained token, less kl_coef · KL at every trained token. Sets advantages and
  // returns of each record, and of each sample: advantage (their mean) and reward (KL taken off).
  TokenAdvantageResult estimate(const TokenAdvantageRequest& request);

 private:
  TokenRow row_of(const Sample& sample, double kl_coef) const;

  TokenAdvantageOptions options_;
  KlType kl_type_;
  std::shared_ptr<TrajectoryStore> store_;
};

}  // namespace tandem
