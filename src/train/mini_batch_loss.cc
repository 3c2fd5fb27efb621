#include "train/mini_batch_loss.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace tandem {
namespace {

const std::vector<float>& old_logprobs_of(const TrainingSample& sample) {
  return old_logprobs(*sample.trajectory, sample.old_logprobs);
}

// Geometric mean of the counted tokens' importance weights; a weight of 0 counts as 1e-10, as in verl.
double mean_importance(const TrainingSample& sample, std::span<const uint8_t> mask) {
  if (sample.importance_weights.empty()) return 1;
  double sum = 0, count = 0;
  for (size_t t = 0; t < mask.size(); ++t)
    if (mask[t] != 0) sum += std::log(sample.importance_weights[t] + 1e-10), count += 1;
  return count == 0 ? 1 : std::exp(sum / count);
}

}  // namespace

MiniBatchLoss::MiniBatchLoss(const LossOptions& options, std::span<const TrainingSample> samples)
    : options_(options), samples_(samples), logprobs_(samples.size()), terms_(samples.size()) {
  counts_.norm_length = options.norm_length;
  for (const TrainingSample& sample : samples) {
    const size_t length = tandem::num_tokens(sample);
    masks_.push_back(token_mask(*sample.trajectory, sample.mask));
    const auto fits = [&](const auto& tokens) { return tokens.empty() || tokens.size() == length; };
    check(masks_.back().size() == length && old_logprobs_of(sample).size() == length && fits(sample.advantages) &&
              fits(sample.importance_weights) && (!options.use_kl_loss || sample.ref_logprobs.size() == length),
          "a sample's token data has another length than its response");
    const int64_t tokens = trained_length(masks_.back());
    counts_.num_tokens += tokens;
    counts_.num_sequences += tokens > 0 ? 1 : 0;
  }
  for (const auto& mask : masks_) weights_.push_back(token_weight(options.aggregation, counts_, trained_length(mask)));
  for (size_t i = 0; options.policy->by_sequence && i < samples.size(); ++i)
    sequence_importance_.push_back(mean_importance(samples[i], masks_[i]));
}

double MiniBatchLoss::importance(size_t i, size_t position) const {
  if (!sequence_importance_.empty()) return sequence_importance_[i];
  return samples_[i].importance_weights.empty() ? 1 : samples_[i].importance_weights[position];
}

LossSequence MiniBatchLoss::sequence(size_t i) const {
  const TrainingSample& sample = samples_[i];
  return {logprobs_[i],
          old_logprobs_of(sample),
          sample.advantage,
          sample.advantages,
          masks_[i],
          sample.trajectory->prompt->id,
          sample.trajectory->sample_index};
}

void MiniBatchLoss::set_logprobs(size_t sample, std::vector<double> logprobs) {
  logprobs_[sample] = std::move(logprobs);
  if (scope() == LossScope::kSequence)
    terms_[sample] = options_.policy->sequence(sequence(sample), options_.policy_options);
}

void MiniBatchLoss::choose(uint64_t seed) {
  std::vector<LossSequence> all;
  for (size_t i = 0; i < samples_.size(); ++i) all.push_back(sequence(i));
  chosen_ = options_.policy->choose(all, options_.policy_options, seed);
}

bool MiniBatchLoss::contributes(size_t i) const {
  const TrainingSample& sample = samples_[i];
  if (trained_length(masks_[i]) == 0) return false;
  const bool kl = options_.use_kl_loss && options_.kl_loss_coef != 0;
  if (kl || options_.entropy_coeff != 0 || !options_.policy->needs_advantage) return true;
  if (sample.advantages.empty()) return sample.advantage != 0;
  return std::ranges::any_of(sample.advantages, [](double advantage) { return advantage != 0; });
}

TargetSlopes MiniBatchLoss::token(size_t i, size_t position, double logprob, double entropy) {
  if (masks_[i][position] == 0) return {};
  const TrainingSample& sample = samples_[i];
  LossToken token{logprob, old_logprobs_of(sample)[position],
                  sample.advantages.empty() ? sample.advantage : sample.advantages[position], terms_[i],
                  !chosen_.empty() && chosen_[i][position] != 0};
  const PolicyLoss policy = options_.policy->token(token, options_.policy_options);
  const double weight = weights_[i];
  const double importance = this->importance(i, position);
  TargetSlopes slopes{weight * importance * policy.slope, -weight * options_.entropy_coeff};
  double loss = importance * policy.loss - options_.entropy_coeff * entropy;
  if (options_.use_kl_loss) {
    const ValueAndSlope kl = token_kl(options_.kl_type, logprob, sample.ref_logprobs[position]);
    slopes.logprob += weight * options_.kl_loss_coef * kl.slope;
    loss += options_.kl_loss_coef * kl.value;
    sums_.kl_loss += weight * kl.value;
  }
  sums_.loss += weight * loss;
  sums_.pg_loss += weight * importance * policy.loss;
  sums_.entropy_loss += weight * entropy;
  sums_.ppo_kl -= policy.log_ratio;
  sums_.clip_fraction += policy.clipped ? 1 : 0;
  sums_.clip_fraction_lower += policy.clipped_lower ? 1 : 0;
  ++sums_.num_computed_tokens;
  return slopes;
}

}  // namespace tandem
