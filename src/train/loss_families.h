// The losses of policy_loss.cc's table, a family a file. Sources and formulas stand at each.
#pragma once

#include "train/policy_loss.h"

namespace tandem {

// loss_clip.cc: a ratio that is kept within bounds.
PolicyLoss gspo_loss(const LossToken& token, const PolicyLossOptions& options);
SequenceTerms gspo_terms(const LossSequence& sequence, const PolicyLossOptions& options);
PolicyLoss geo_mean_loss(const LossToken& token, const PolicyLossOptions& options);
SequenceTerms geo_mean_terms(const LossSequence& sequence, const PolicyLossOptions& options);

// loss_weighted.cc: a smooth or a constant weight in the place of the clipped ratio.
PolicyLoss sapo_loss(const LossToken& token, const PolicyLossOptions& options);
PolicyLoss cispo_loss(const LossToken& token, const PolicyLossOptions& options);
PolicyLoss dppo_tv_loss(const LossToken& token, const PolicyLossOptions& options);
PolicyLoss dppo_kl_loss(const LossToken& token, const PolicyLossOptions& options);

// loss_plain.cc: no ratio.
PolicyLoss reinforce_loss(const LossToken& token, const PolicyLossOptions& options);
PolicyLoss dro_loss(const LossToken& token, const PolicyLossOptions& options);

// loss_covariance.cc: tokens chosen by the covariance of advantage and log-prob.
PolicyLoss clip_cov_loss(const LossToken& token, const PolicyLossOptions& options);
std::vector<std::vector<uint8_t>> clip_cov_choice(std::span<const LossSequence> batch, const PolicyLossOptions& options,
                                                  uint64_t seed);
PolicyLoss kl_cov_loss(const LossToken& token, const PolicyLossOptions& options);
std::vector<std::vector<uint8_t>> kl_cov_choice(std::span<const LossSequence> batch, const PolicyLossOptions& options,
                                                uint64_t seed);

}  // namespace tandem
