#include "train/loss_families.h"

namespace tandem {

// −A log π (Williams 1992); also GPG's (Chu et al. 2025, arXiv:2504.02546).
PolicyLoss reinforce_loss(const LossToken& token, const PolicyLossOptions&) {
  return {-token.advantage * token.logprob, -token.advantage, LogRatio(token).value, false, false};
}

// DRO (Richemond et al. 2024, arXiv:2405.19107): −(A log π − β/2 (log π − log π_old)²).
PolicyLoss dro_loss(const LossToken& token, const PolicyLossOptions& o) {
  const double d = token.logprob - token.old_logprob;
  return {-token.advantage * token.logprob + 0.5 * o.dro_beta * d * d, -token.advantage + o.dro_beta * d,
          LogRatio(token).value, false, false};
}

}  // namespace tandem
