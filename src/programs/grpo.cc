#include "programs/grpo.h"

namespace tandem {

StepResult Grpo::step(const PromptSource& prompts) {
  Metrics metrics;
  ScoredBatch scored = experience_.collect(prompts, metrics);
  if (options_.by_token) {
    experience_.estimate_by_token(scored.samples, metrics);
  } else {
    for (Sample& sample : scored.samples) sample.reward -= experience_.kl_coef() * sample.kl;
    estimate_advantages(scored, options_.advantage);
  }
  metrics.merge(roles_.actor.call<&Engine::update_policy>("update_actor", scored.samples));
  ++num_steps_;
  return {std::move(scored), std::move(metrics)};
}

void Grpo::restore(const ProgramState& state) {
  experience_.kl().restore(state.kl_coef);
  num_steps_ = state.num_steps;
}

}  // namespace tandem
