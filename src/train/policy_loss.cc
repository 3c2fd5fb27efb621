#include "train/policy_loss.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "train/loss_families.h"

namespace tandem {
namespace {

constexpr auto kToken = LossScope::kToken, kSequence = LossScope::kSequence, kMiniBatch = LossScope::kMiniBatch;
constexpr auto kSeqMean = LossAggregation::kSeqMeanTokenMean;

constexpr PolicyLossKind kLosses[] = {
    // name, scope, token, sequence, choose, needs_advantage, aggregation, by_sequence
    {"vanilla", kToken, vanilla_loss, nullptr, nullptr, true, {}},
    {"gspo", kSequence, gspo_loss, gspo_terms, nullptr, true, kSeqMean},
    {"sapo", kToken, sapo_loss, nullptr, nullptr, true, kSeqMean},
    {"cispo", kToken, cispo_loss, nullptr, nullptr, true, {}},
    {"gpg", kToken, reinforce_loss, nullptr, nullptr, true, {}},
    {"geo_mean", kSequence, geo_mean_loss, geo_mean_terms, nullptr, true, kSeqMean, true},
    {"clip_cov", kMiniBatch, clip_cov_loss, nullptr, clip_cov_choice, true, {}},
    {"kl_cov", kMiniBatch, kl_cov_loss, nullptr, kl_cov_choice, false, {}},
    {"dppo_tv", kToken, dppo_tv_loss, nullptr, nullptr, true, {}},
    {"dppo_kl", kToken, dppo_kl_loss, nullptr, nullptr, true, {}},
    {"dro", kToken, dro_loss, nullptr, nullptr, false, {}},
    {"reinforce", kToken, reinforce_loss, nullptr, nullptr, true, {}},
};

constexpr double kLogRatioLimit = 20;

}  // namespace

std::span<const PolicyLossKind> policy_losses() { return kLosses; }

const PolicyLossKind& find_policy_loss(std::string_view name) {
  const auto found = std::ranges::find(kLosses, name, &PolicyLossKind::name);
  if (found != std::end(kLosses)) return *found;
  std::string known;
  for (const PolicyLossKind& kind : kLosses) known += (known.empty() ? "" : ", ") + std::string(kind.name);
  throw ConfigError(fmt::format("unknown policy_loss.loss_mode '{}'; known: {}", name, known));
}

LogRatio::LogRatio(const LossToken& token) {
  const double difference = token.logprob - token.old_logprob;
  value = std::clamp(difference, -kLogRatioLimit, kLogRatioLimit);
  moves = value == difference;
}

}  // namespace tandem
