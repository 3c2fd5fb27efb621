#include <algorithm>
#include <cmath>

#include "train/loss_families.h"

namespace tandem {
namespace {

constexpr double kSequenceLogRatioLimit = 10;  // gspo: upper side only, as in verl

// max(−A r, −A clip(r)).
struct Clipped {
  double plain, loss;
  bool clipped;
};
Clipped clip_ratio(double ratio, double advantage, const PolicyLossOptions& o) {
  const double plain = -advantage * ratio;
  const double bounded = -advantage * std::clamp(ratio, 1 - o.clip_low, 1 + o.clip_high);
  return {plain, std::max(plain, bounded), bounded > plain};
}

template <class Fn>
double mean_of_counted(const LossSequence& s, Fn fn) {
  double sum = 0, count = 0;
  for (size_t t = 0; t < s.mask.size(); ++t)
    if (s.mask[t] != 0) sum += fn(t), count += 1;
  return count == 0 ? 0 : sum / count;
}

// What GMPO keeps of a token's log-ratio: no more than the bound in the direction in which the token would gain.
double geo_mean_log_ratio(double log_ratio, double advantage, const PolicyLossOptions& o) {
  if (advantage > 0) return std::min(log_ratio, o.clip_high);
  if (advantage < 0) return std::max(log_ratio, -o.clip_low);
  return 0;
}

}  // namespace

PolicyLoss vanilla_loss(const LossToken& token, const PolicyLossOptions& options) {
  const LogRatio log_ratio(token);
  const Clipped c = clip_ratio(std::exp(log_ratio.value), token.advantage, options);
  PolicyLoss out{c.loss, 0, log_ratio.value, c.clipped, false};
  if (token.advantage < 0 && -token.advantage * options.clip_c < out.loss) {
    out.clipped_lower = true;
    out.loss = -token.advantage * options.clip_c;
  }
  out.slope = !out.clipped && !out.clipped_lower && log_ratio.moves ? c.plain : 0;
  return out;
}

// GSPO (Zheng et al. 2025, arXiv:2507.18071), its token form: the ratio is the sequence's geometric mean, and its
// derivative goes through the token's own log-prob.
SequenceTerms gspo_terms(const LossSequence& s, const PolicyLossOptions&) {
  return {mean_of_counted(s, [&](size_t t) { return s.logprobs[t] - s.old_logprobs[t]; }), 0};
}

PolicyLoss gspo_loss(const LossToken& token, const PolicyLossOptions& options) {
  const double kept = std::min(token.sequence.log_ratio, kSequenceLogRatioLimit);
  const Clipped c = clip_ratio(std::exp(kept), token.advantage, options);
  const bool moves = !c.clipped && kept == token.sequence.log_ratio;
  return {c.loss, moves ? c.plain : 0, LogRatio(token).value, c.clipped, false};
}

// GMPO (Zhao et al. 2025, arXiv:2507.20673): −mean A · exp(mean of the bounded log-ratios). Every token carries the
// sequence's loss, so that the mean over its tokens is that loss, and a bounded token has no derivative.
SequenceTerms geo_mean_terms(const LossSequence& s, const PolicyLossOptions& o) {
  const auto kept = [&](size_t t) {
    return geo_mean_log_ratio(LogRatio({s.logprobs[t], s.old_logprobs[t], 0, {}, false}).value, s.advantage_at(t), o);
  };
  return {mean_of_counted(s, kept), mean_of_counted(s, [&](size_t t) { return s.advantage_at(t); })};
}

PolicyLoss geo_mean_loss(const LossToken& token, const PolicyLossOptions& o) {
  const LogRatio log_ratio(token);
  const double loss = -token.sequence.advantage * std::exp(token.sequence.log_ratio);
  const bool outside = log_ratio.value > o.clip_high || log_ratio.value < -o.clip_low;
  const bool free = token.advantage != 0 && log_ratio.moves &&
                    geo_mean_log_ratio(log_ratio.value, token.advantage, o) == log_ratio.value;
  return {loss, free ? loss : 0, log_ratio.value, outside && token.advantage > 0, outside && token.advantage < 0};
}

}  // namespace tandem
