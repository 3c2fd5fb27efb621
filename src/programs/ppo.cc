#include "programs/ppo.h"

namespace tandem {

StepResult Ppo::step(const PromptSource& prompts) {
  Metrics metrics;
  ScoredBatch scored = experience_.collect(prompts, metrics);
  RolloutBatch& batch = scored.samples;
  batch = roles_.critic->call<&Critic::compute_values>("values", batch);
  experience_.estimate_by_token(batch, metrics);
  metrics.merge(roles_.critic->call<&Critic::update_values>("update_critic", batch));
  if (num_steps_ >= options_.critic_warmup)
    metrics.merge(roles_.actor.call<&Engine::update_policy>("update_actor", batch));
  ++num_steps_;
  return {std::move(scored), std::move(metrics)};
}

void Ppo::restore(const ProgramState& state) {
  experience_.kl().restore(state.kl_coef);
  num_steps_ = state.num_steps;
}

}  // namespace tandem
