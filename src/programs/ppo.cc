#include "programs/ppo.h"

namespace tandem {

StepResult Ppo::step(const PromptSource& prompts, int64_t steps_done) {
  Experience::Collected step = experience_.collect(prompts);
  RolloutBatch& batch = step.scored.samples;
  batch = roles_.critic->call<&Critic::compute_values>("values", batch);
  experience_.estimate_by_token(step);
  step.metrics.merge(roles_.critic->call<&Critic::update_values>("update_critic", batch));
  if (steps_done >= options_.critic_warmup)
    step.metrics.merge(roles_.actor.call<&Engine::update_policy>("update_actor", batch));
  return {std::move(step.scored), std::move(step.metrics)};
}

}  // namespace tandem
