// The policy losses, in double, as a table by name. A loss gives each token its value and its derivative by the token's
// log-prob; how tokens become one number is token_weight()'s (loss.h). Pure functions; adding a loss is a function in
// its family's file (loss_<family>.cc) and a row in policy_loss.cc.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "train/loss.h"

namespace tandem {

struct PolicyLossOptions {
  double clip_low = 0.2, clip_high = 0.2;  // the ratio is kept in [1 − low, 1 + high]; dppo: the divergence allowed
  double clip_c = 3.0;                     // vanilla: dual clip; dppo: most that a ratio may weigh
  double tau_pos = 1.0, tau_neg = 1.05;    // sapo
  double clip_cov_ratio = 0.0002, clip_cov_low = 1, clip_cov_high = 5;  // clip_cov
  double kl_cov_ratio = 0.0002, kl_cov_coef = 1;                        // kl_cov (ppo_kl_coef)
  double dro_beta = 0.1;
};

// A response as a loss sees it. logprobs: under the weights that are being updated.
struct LossSequence {
  std::span<const double> logprobs;
  std::span<const float> old_logprobs;
  double advantage = 0;                // of every token, unless
  std::span<const double> advantages;  // each has its own
  std::span<const uint8_t> mask;       // 1: counts
  uint64_t prompt_id = 0;              // with sample_index: names it, wherever it lies in the batch
  uint32_t sample_index = 0;

  double advantage_at(size_t t) const { return advantages.empty() ? advantage : advantages[t]; }
};

// What a loss may know of a token's sequence: a constant of the token's derivative.
struct SequenceTerms {
  double log_ratio = 0;  // mean over its tokens
  double advantage = 0;  // mean over its tokens
};

struct LossToken {
  double logprob = 0, old_logprob = 0, advantage = 0;
  SequenceTerms sequence;  // scope kSequence
  bool chosen = false;     // scope kMiniBatch
};

struct PolicyLoss {
  double loss = 0;
  double slope = 0;            // d loss / d logprob
  double log_ratio = 0;        // limited to ±20, as in verl
  bool clipped = false;        // counted in actor/pg_clipfrac
  bool clipped_lower = false;  // counted in actor/pg_clipfrac_lower
};

// What must be known before the first token's loss: nothing, the log-probs of its sequence, or of the mini-batch.
enum class LossScope : uint8_t { kToken, kSequence, kMiniBatch };

struct PolicyLossKind {
  std::string_view name;  // verl's policy_loss.loss_mode
  LossScope scope;
  PolicyLoss (*token)(const LossToken& token, const PolicyLossOptions& options);
  SequenceTerms (*sequence)(const LossSequence& sequence, const PolicyLossOptions& options);  // kSequence
  // kMiniBatch: a flag for each token. `seed` varies from mini-batch to mini-batch.
  std::vector<std::vector<uint8_t>> (*choose)(std::span<const LossSequence> batch, const PolicyLossOptions& options,
                                              uint64_t seed);
  bool needs_advantage;                        // a token without advantage has neither loss nor derivative
  std::optional<LossAggregation> aggregation;  // the only one it is defined with
  bool by_sequence = false;                    // one loss a response: importance weights enter by their geometric mean
};

std::span<const PolicyLossKind> policy_losses();
const PolicyLossKind& find_policy_loss(std::string_view name);  // ConfigError naming the known ones

// PPO's clipped objective (Schulman et al. 2017, arXiv:1707.06347) with asymmetric bounds (DAPO, arXiv:2503.14476) and
// the dual clip for negative advantages (Ye et al. 2020, arXiv:1912.09729).
PolicyLoss vanilla_loss(const LossToken& token, const PolicyLossOptions& options);

// log π − log π_old, limited to ±20 as in verl: beyond, the ratio is constant.
struct LogRatio {
  explicit LogRatio(const LossToken& token);
  double value;
  bool moves;  // within the limit
};

}  // namespace tandem
