// Group relative policy optimisation (Shao et al. 2024, arXiv:2402.03300) and the estimators that share its dataflow.
#pragma once

#include "control/worker_group.h"
#include "engine/engine.h"
#include "engine/reference.h"
#include "programs/advantage.h"
#include "programs/dispatch.h"
#include "reward/reward_worker.h"

namespace tandem {

struct GrpoOptions {
  AdvantageEstimator estimator = AdvantageEstimator::kGrpo;
  bool use_kl_in_reward = false;
  double kl_coef = 0.001;  // of KL in the reward
};

struct StepResult {
  ScoredBatch batch;
  Metrics update;
};

class Grpo {
 public:
  // The groups must outlive it. `reference` may be null where no KL is asked for.
  Grpo(GrpoOptions options, WorkerGroup<Engine>& actor, WorkerGroup<RewardWorker>& reward,
       WorkerGroup<Reference>* reference)
      : options_(options), actor_(actor), reward_(reward), reference_(reference) {}

  StepResult step(const PromptList& prompts);

 private:
  void subtract_kl(RolloutBatch& batch) const;

  GrpoOptions options_;
  WorkerGroup<Engine>& actor_;
  WorkerGroup<RewardWorker>& reward_;
  WorkerGroup<Reference>* reference_;
};

}  // namespace tandem
