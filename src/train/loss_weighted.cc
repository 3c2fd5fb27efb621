#include <algorithm>
#include <cmath>

#include "train/loss_families.h"

namespace tandem {
namespace {

// −A · weight · log π, with a constant weight.
PolicyLoss weighted(const LossToken& token, double weight) {
  const double slope = -token.advantage * weight;
  return {slope * token.logprob, slope, LogRatio(token).value, false, false};
}

PolicyLoss masked_weighted(const LossToken& token, bool valid, const PolicyLossOptions& o) {
  const double ratio = std::exp(LogRatio(token).value);
  PolicyLoss out = weighted(token, valid ? std::min(ratio, o.clip_c) : 0);
  out.clipped = !valid, out.clipped_lower = valid && ratio > o.clip_c;
  return out;
}

// KL between the old and the new policy, both reduced to "this token or another".
double binary_kl(double old_logprob, double logprob) {
  const double p_old = std::exp(old_logprob), p = std::exp(logprob);
  return p_old * (old_logprob - logprob) + (1 - p_old) * std::log((1 - p_old + 1e-8) / (1 - p + 1e-8));
}

}  // namespace

// SAPO (Gao et al. 2025, arXiv:2511.20347): −A · (4/τ) σ(τ (r − 1)), a smooth gate in the place of the clip.
PolicyLoss sapo_loss(const LossToken& token, const PolicyLossOptions& o) {
  const LogRatio log_ratio(token);
  const double tau = token.advantage > 0 ? o.tau_pos : o.tau_neg, ratio = std::exp(log_ratio.value);
  const double gate = 1 / (1 + std::exp(-tau * (ratio - 1)));
  const double slope = log_ratio.moves ? -token.advantage * 4 * gate * (1 - gate) * ratio : 0;
  return {-token.advantage * gate * 4 / tau, slope, log_ratio.value, false, false};
}

// CISPO (MiniMax-M1, arXiv:2506.13585): the clipped ratio is a constant weight of −A log π.
PolicyLoss cispo_loss(const LossToken& token, const PolicyLossOptions& o) {
  const double ratio = std::exp(LogRatio(token).value), kept = std::clamp(ratio, 1 - o.clip_low, 1 + o.clip_high);
  PolicyLoss out = weighted(token, kept);
  out.clipped = kept != ratio;
  return out;
}

// DPPO (Qi et al. 2026, arXiv:2602.04879): tokens that have moved too far from the old policy, and would move further,
// drop out; the rest weigh min(r, c). Distance: difference of probabilities, or binary KL.
PolicyLoss dppo_tv_loss(const LossToken& token, const PolicyLossOptions& o) {
  const double moved = std::exp(token.logprob) - std::exp(token.old_logprob);
  return masked_weighted(token, token.advantage > 0 ? moved <= o.clip_high : moved >= -o.clip_low, o);
}

PolicyLoss dppo_kl_loss(const LossToken& token, const PolicyLossOptions& o) {
  const double distance = binary_kl(token.old_logprob, token.logprob);
  const bool valid = token.advantage > 0 ? distance <= o.clip_high || token.logprob <= token.old_logprob
                                         : distance <= o.clip_low || token.logprob >= token.old_logprob;
  return masked_weighted(token, valid, o);
}

}  // namespace tandem
