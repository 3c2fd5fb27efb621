// A trained reward model as a reward function: replies are rendered by its own chat template and scored together, once
// the first score is asked for.
#pragma once

#include <mutex>
#include <vector>

#include "app/chat.h"
#include "engine/reward_model.h"
#include "reward/reward.h"

namespace tandem {

struct ModelRewardOptions {
  std::filesystem::path model_path;
  at::Device device = at::kCPU;
  int64_t max_micro_tokens = 4096;
};

class ModelReward final : public RewardFunction {
 public:
  explicit ModelReward(const ModelRewardOptions& options);

  // DataError where conversation and reply are longer than the model was made for. A reply cut by the length limit is
  // scored as if it ended there.
  std::future<RewardResult> submit(RewardRequest request) override;

 private:
  struct Pending {
    RewardRequest request;
    std::promise<RewardResult> result;
  };
  void score_pending();
  TrajectoryPtr reply_of(const RewardRequest& request, const PromptPtr& shared) const;

  Chat chat_;
  RewardModel model_;
  std::mutex mutex_;  // held while scoring too: the model is used by one thread at a time
  std::vector<Pending> pending_;
};

}  // namespace tandem
