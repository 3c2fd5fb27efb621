// Cui et al. 2025, "The entropy mechanism of reinforcement learning" (arXiv:2505.22617): the few tokens in which
// advantage and log-prob move together make the entropy fall. A token's covariance is (A − mean A)(log π − mean log π),
// the means over the counted tokens of the whole mini-batch.
#include <algorithm>
#include <cmath>
#include <tuple>

#include "base/rng.h"
#include "train/loss_families.h"

namespace tandem {
namespace {

struct Place {
  size_t sequence, token;
};

template <class Fn>
void counted(std::span<const LossSequence> batch, Fn fn) {
  for (size_t i = 0; i < batch.size(); ++i)
    for (size_t t = 0; t < batch[i].mask.size(); ++t)
      if (batch[i].mask[t] != 0) fn(Place{i, t});
}

class Covariance {
 public:
  explicit Covariance(std::span<const LossSequence> batch) : batch_(batch) {
    counted(batch, [&](Place p) { advantage_ += advantage(p), logprob_ += logprob(p), count_ += 1; });
    advantage_ /= std::max(count_, 1.0), logprob_ /= std::max(count_, 1.0);
  }
  double at(Place p) const { return (advantage(p) - advantage_) * (logprob(p) - logprob_); }
  // How many tokens a share is: at least one.
  size_t share(double ratio) const { return static_cast<size_t>(std::max(1.0, std::floor(ratio * count_))); }

 private:
  double advantage(Place p) const { return batch_[p.sequence].advantage_at(p.token); }
  double logprob(Place p) const { return batch_[p.sequence].logprobs[p.token]; }

  std::span<const LossSequence> batch_;
  double advantage_ = 0, logprob_ = 0, count_ = 0;
};

// The `most` places with the smallest key; equal keys by place in the data, so that the batch's order does not matter.
template <class Key>
std::vector<std::vector<uint8_t>> smallest(std::span<const LossSequence> batch, std::vector<Place> places, size_t most,
                                           Key key) {
  const auto rank = [&](Place p) {
    return std::tuple(key(p), batch[p.sequence].prompt_id, batch[p.sequence].sample_index, p.token);
  };
  std::ranges::sort(places, [&](Place a, Place b) { return rank(a) < rank(b); });
  places.resize(std::min(most, places.size()));
  std::vector<std::vector<uint8_t>> flags;
  for (const LossSequence& sequence : batch) flags.emplace_back(sequence.mask.size());
  for (const Place p : places) flags[p.sequence][p.token] = 1;
  return flags;
}

}  // namespace

// A random share of the tokens whose covariance lies within the bounds, of those that PPO's clip leaves. The draw is a
// function of the token's name, not of where it lies in the batch.
std::vector<std::vector<uint8_t>> clip_cov_choice(std::span<const LossSequence> batch, const PolicyLossOptions& o,
                                                  uint64_t seed) {
  const Covariance covariance(batch);
  std::vector<Place> places;
  counted(batch, [&](Place p) {
    const LossSequence& s = batch[p.sequence];
    const LossToken token{s.logprobs[p.token], s.old_logprobs[p.token], s.advantage_at(p.token), {}, false};
    const double value = covariance.at(p);
    if (value > o.clip_cov_low && value < o.clip_cov_high && !vanilla_loss(token, o).clipped) places.push_back(p);
  });
  return smallest(batch, std::move(places), covariance.share(o.clip_cov_ratio), [&](Place p) {
    const LossSequence& s = batch[p.sequence];
    return uniform_for({seed, 0, s.prompt_id, s.sample_index}, static_cast<uint32_t>(p.token));
  });
}

// PPO's clip without the dual one; a chosen token has no loss.
PolicyLoss clip_cov_loss(const LossToken& token, const PolicyLossOptions& options) {
  PolicyLossOptions single = options;
  single.clip_c = INFINITY;
  PolicyLoss out = vanilla_loss(token, single);
  out.clipped = token.chosen;
  if (token.chosen) out.loss = out.slope = 0;
  return out;
}

// The tokens of the greatest covariance: at least one, but none of a share of 0, as in verl.
std::vector<std::vector<uint8_t>> kl_cov_choice(std::span<const LossSequence> batch, const PolicyLossOptions& o,
                                                uint64_t /*seed*/) {
  const Covariance covariance(batch);
  std::vector<Place> places;
  if (o.kl_cov_ratio > 0) counted(batch, [&](Place p) { places.push_back(p); });
  return smallest(batch, std::move(places), covariance.share(o.kl_cov_ratio),
                  [&](Place p) { return -covariance.at(p); });
}

// −A r, and for a chosen token + coefficient · |log π − log π_old|.
PolicyLoss kl_cov_loss(const LossToken& token, const PolicyLossOptions& o) {
  const LogRatio log_ratio(token);
  const double loss = -token.advantage * std::exp(log_ratio.value);
  PolicyLoss out{loss, log_ratio.moves ? loss : 0, log_ratio.value, false, false};
  if (!token.chosen) return out;
  const double d = token.logprob - token.old_logprob;
  out.loss += o.kl_cov_coef * std::abs(d);
  out.slope += o.kl_cov_coef * (d > 0 ? 1 : d < 0 ? -1 : 0);
  return out;
}

}  // namespace tandem
