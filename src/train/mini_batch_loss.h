// The policy's loss over one mini-batch: denominators, choices and means are the whole mini-batch's, tokens may come in
// any cut and order of samples, so neither the loss nor its gradient depends on the micro-batches. In double.
#pragma once

#include <span>
#include <vector>

#include "train/head.h"
#include "train/policy_loss.h"
#include "train/training_sample.h"

namespace tandem {

struct LossOptions {
  const PolicyLossKind* policy = &find_policy_loss("vanilla");
  PolicyLossOptions policy_options;
  LossAggregation aggregation = LossAggregation::kTokenMean;
  double norm_length = 1;  // divisor of seq-mean-token-sum-norm
  double entropy_coeff = 0;
  bool use_kl_loss = false;
  double kl_loss_coef = 0.001;
  KlType kl_type;
};

// Sums over the tokens given so far.
struct LossSums {
  double loss = 0, pg_loss = 0, kl_loss = 0, entropy_loss = 0;    // weighted as the aggregation says
  double clip_fraction = 0, clip_fraction_lower = 0, ppo_kl = 0;  // counts, and Σ −log-ratio
  int64_t num_computed_tokens = 0;
};

class MiniBatchLoss {
 public:
  // `samples` must outlive it.
  MiniBatchLoss(const LossOptions& options, std::span<const TrainingSample> samples);

  // What the policy loss must be told before token(): nothing, the sample's log-probs, or everyone's and then choose().
  LossScope scope() const { return options_.policy->scope; }
  void set_logprobs(size_t sample, std::vector<double> logprobs);
  bool has_logprobs(size_t sample) const { return !logprobs_[sample].empty(); }
  void choose(uint64_t seed);

  // False where the sample can change neither loss nor gradient.
  bool contributes(size_t sample) const;

  // Adds a token to the sums and returns its derivatives; {0, 0} where it is masked.
  TargetSlopes token(size_t sample, size_t position, double logprob, double entropy);

  const LossSums& sums() const { return sums_; }
  int64_t num_tokens() const { return counts_.num_tokens; }  // counted ones of the mini-batch

 private:
  LossSequence sequence(size_t sample) const;
  double importance(size_t sample, size_t position) const;

  LossOptions options_;
  std::span<const TrainingSample> samples_;
  std::vector<std::vector<uint8_t>> masks_, chosen_;
  std::vector<std::vector<double>> logprobs_;
  std::vector<SequenceTerms> terms_;
  std::vector<double> weights_;              // of each token of a sample
  std::vector<double> sequence_importance_;  // of each sample; empty where every token has its own
  BatchCounts counts_;
  LossSums sums_;
};

}  // namespace tandem
