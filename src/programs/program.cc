#include "programs/program.h"

#include "base/error.h"
#include "programs/grpo.h"
#include "programs/ppo.h"

namespace tandem {

std::unique_ptr<Program> make_program(const ProgramOptions& options, const Roles& roles) {
  check(roles.critic == nullptr || roles.token_advantages != nullptr, "a critic needs token advantages");
  check(!options.correct_rollout || roles.actor.world_size() == 1,
        "rollout correction looks at the whole batch: the actor has one worker");
  check(roles.token_advantages == nullptr || roles.token_advantages->world_size() == 1,
        "whitening looks at the whole batch: token advantages have one worker");
  if (roles.critic != nullptr) return std::make_unique<Ppo>(options, roles);
  return std::make_unique<Grpo>(options, roles);
}

Experience::Collected Experience::collect(const PromptSource& prompts) {
  Collected out{collector_.collect(prompts), kl_.coefficient(), collector_.metrics()};
  RolloutBatch& batch = out.scored.samples;
  if (options_.correct_rollout) {
    CorrectedBatch corrected = roles_.actor.call<&Engine::correct_rollout>("old_log_prob", batch);
    batch = std::move(corrected.samples);
    out.metrics.merge(corrected.metrics);
  }
  if (options_.squared_probs) batch = roles_.actor.call<&Engine::compute_squared_probs>("old_log_prob", batch);
  if (roles_.reference != nullptr) batch = roles_.reference->call<&Reference::compute_logprobs>("ref", batch);
  out.metrics.merge(kl_.observe(batch));
  return out;
}

void Experience::estimate_by_token(Collected& collected) const {
  TokenAdvantageResult result = roles_.token_advantages->call<&TokenAdvantages::estimate>(
      "adv", TokenAdvantageRequest{std::move(collected.scored.samples), collected.kl_coef});
  collected.scored.samples = std::move(result.samples);
  collected.metrics.merge(result.metrics);
}

}  // namespace tandem
