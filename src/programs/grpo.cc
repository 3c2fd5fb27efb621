#include "programs/grpo.h"

namespace tandem {

StepResult Grpo::step(const PromptList& prompts) {
  const RolloutBatch drawn = actor_.call<&Engine::generate>("gen", prompts);
  ScoredBatch scored = reward_.call<&RewardWorker::score>("reward", drawn);
  RolloutBatch& batch = scored.samples;
  if (reference_ != nullptr) batch = reference_->call<&Reference::compute_logprobs>("ref", batch);
  subtract_kl(batch);
  estimate_advantages(batch, options_.estimator);
  Metrics update = actor_.call<&Engine::update_policy>("update_actor", batch);
  return {std::move(scored), std::move(update)};
}

void Grpo::subtract_kl(RolloutBatch& batch) const {
  if (!options_.use_kl_in_reward) return;
  for (Sample& sample : batch) sample.reward -= options_.kl_coef * sample.kl;
}

}  // namespace tandem
