#include "programs/grpo.h"

namespace tandem {

StepResult Grpo::step(const PromptSource& prompts, int64_t) {
  Experience::Collected step = experience_.collect(prompts);
  if (roles_.token_advantages != nullptr) {
    experience_.estimate_by_token(step);
  } else {
    for (Sample& sample : step.scored.samples) sample.reward -= step.kl_coef * sample.kl;
    estimate_advantages(step.scored, options_.advantage);
  }
  step.metrics.merge(roles_.actor.call<&Engine::update_policy>("update_actor", step.scored.samples));
  return {std::move(step.scored), std::move(step.metrics)};
}

}  // namespace tandem
