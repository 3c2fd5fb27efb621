// KL estimates and their exact derivatives, and how token losses become one number; in double. Pure functions. The
// policy losses are in policy_loss.h.
#pragma once

#include <cstdint>
#include <string_view>

namespace tandem {

enum class KlEstimator { kK1, kAbs, kK2, kK3 };

struct KlType {
  KlEstimator estimator = KlEstimator::kK3;
  bool straight_through = false;  // "+": this estimator's value, k2's gradient
};
KlType parse_kl_type(std::string_view name);  // verl's names; ConfigError otherwise

struct ValueAndSlope {
  double value = 0;
  double slope = 0;  // d value / d logprob
};

// Estimates of KL(policy || reference) at one token (Schulman 2020, "Approximating KL divergence"), with
// d = logprob − ref_logprob: k1 = d, abs = |d|, k2 = d²/2, k3 = e^(−d) + d − 1. As in verl, k3 limits d to ±20 and its
// value to 10; the slope is 0 beyond a limit.
ValueAndSlope token_kl(KlType type, double logprob, double ref_logprob);

// How token losses become one number. Counts are those of the whole mini-batch over all ranks, so that neither the
// micro-batches nor the ranks it is cut into change the result.
enum class LossAggregation { kTokenMean, kTokenSum, kSeqMeanTokenSum, kSeqMeanTokenMean, kSeqMeanTokenSumNorm };
LossAggregation parse_loss_aggregation(std::string_view name);  // verl's names; ConfigError otherwise

struct BatchCounts {
  int64_t num_tokens = 0;     // trained response tokens
  int64_t num_sequences = 0;  // responses with at least one of them
  double norm_length = 1;     // divisor of seq-mean-token-sum-norm
};
// The factor of each token of a response with `length` trained tokens.
double token_weight(LossAggregation mode, const BatchCounts& counts, int64_t length);

}  // namespace tandem
