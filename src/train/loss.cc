#include "train/loss.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/error.h"

namespace tandem {
namespace {

constexpr double kLogRatioLimit = 20, kK3Limit = 10;

ValueAndSlope base_kl(KlEstimator estimator, double d) {
  switch (estimator) {
    case KlEstimator::kK1:
      return {d, 1};
    case KlEstimator::kAbs:
      return {std::abs(d), d > 0 ? 1.0 : d < 0 ? -1.0 : 0.0};
    case KlEstimator::kK2:
      return {0.5 * d * d, d};
    case KlEstimator::kK3:
      break;
  }
  const double limited = std::clamp(d, -kLogRatioLimit, kLogRatioLimit);
  const double value = std::expm1(-limited) + limited;
  if (value > kK3Limit) return {kK3Limit, 0};
  return {value, -std::expm1(-limited)};
}

}  // namespace

KlType parse_kl_type(std::string_view name) {
  KlType type;
  type.straight_through = name.ends_with('+');
  const auto base = name.substr(0, name.size() - (type.straight_through ? 1 : 0));
  if (base == "kl" || base == "k1") {
    type.estimator = KlEstimator::kK1;
  } else if (base == "abs") {
    type.estimator = KlEstimator::kAbs;
  } else if (base == "mse" || base == "k2") {
    type.estimator = KlEstimator::kK2;
  } else if (base == "low_var_kl" || base == "k3") {
    type.estimator = KlEstimator::kK3;
  } else {
    throw ConfigError("unknown KL estimator '" + std::string(name) +
                      "'; known: kl (k1), abs, mse (k2), low_var_kl (k3), each also with a final +");
  }
  return type;
}

ValueAndSlope token_kl(KlType type, double logprob, double ref_logprob) {
  const double d = logprob - ref_logprob;
  ValueAndSlope kl = base_kl(type.estimator, d);
  if (type.straight_through) kl.slope = base_kl(KlEstimator::kK2, d).slope;
  return kl;
}

LossAggregation parse_loss_aggregation(std::string_view name) {
  if (name == "token-mean") return LossAggregation::kTokenMean;
  if (name == "token-sum") return LossAggregation::kTokenSum;
  if (name == "seq-mean-token-sum") return LossAggregation::kSeqMeanTokenSum;
  if (name == "seq-mean-token-mean") return LossAggregation::kSeqMeanTokenMean;
  if (name == "seq-mean-token-sum-norm") return LossAggregation::kSeqMeanTokenSumNorm;
  throw ConfigError(
      "unknown loss_agg_mode '" + std::string(name) +
      "'; known: token-mean, token-sum, seq-mean-token-sum, seq-mean-token-mean, seq-mean-token-sum-norm");
}

double token_weight(LossAggregation mode, const BatchCounts& counts, int64_t length) {
  const auto tokens = static_cast<double>(counts.num_tokens), sequences = static_cast<double>(counts.num_sequences);
  switch (mode) {
    case LossAggregation::kTokenMean:
      return 1 / tokens;
    case LossAggregation::kTokenSum:
      return 1;
    case LossAggregation::kSeqMeanTokenSum:
      return 1 / sequences;
    case LossAggregation::kSeqMeanTokenMean:
      return 1 / (sequences * (static_cast<double>(length) + 1e-8));
    case LossAggregation::kSeqMeanTokenSumNorm:
      return 1 / (sequences * counts.norm_length);
  }
  check(false, "unhandled loss aggregation");
  return 0;
}

}  // namespace tandem
