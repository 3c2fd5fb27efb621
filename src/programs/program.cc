#include "programs/program.h"

#include "base/error.h"
#include "programs/grpo.h"
#include "programs/ppo.h"

namespace tandem {

std::unique_ptr<Program> make_program(const ProgramOptions& options, const Roles& roles) {
  check(!options.by_token || roles.token_advantages != nullptr, "nobody estimates advantages");
  check(roles.token_advantages == nullptr || roles.token_advantages->world_size() == 1,
        "whitening looks at the whole batch: token advantages have one worker");
  if (roles.critic != nullptr) return std::make_unique<Ppo>(options, roles);
  return std::make_unique<Grpo>(options, roles);
}

ScoredBatch Experience::collect(const PromptSource& prompts, Metrics& metrics) {
  ScoredBatch scored = collector_.collect(prompts);
  metrics.merge(collector_.metrics());
  RolloutBatch& batch = scored.samples;
  if (options_.correct_rollout) {
    CorrectedBatch corrected = roles_.actor.call<&Engine::correct_rollout>("old_log_prob", batch);
    batch = std::move(corrected.samples);
    metrics.merge(corrected.metrics);
  }
  if (options_.squared_probs) batch = roles_.actor.call<&Engine::compute_squared_probs>("old_log_prob", batch);
  if (roles_.reference != nullptr) batch = roles_.reference->call<&Reference::compute_logprobs>("ref", batch);
  kl_coef_ = kl_.coefficient();
  metrics.merge(kl_.observe(batch));
  return scored;
}

void Experience::estimate_by_token(RolloutBatch& batch, Metrics& metrics) const {
  TokenAdvantageResult result = roles_.token_advantages->call<&TokenAdvantages::estimate>(
      "adv", TokenAdvantageRequest{std::move(batch), kl_coef_});
  batch = std::move(result.samples);
  metrics.merge(result.metrics);
}

}  // namespace tandem
