// The weight of KL in the reward (Ziegler et al. 2019, arXiv:1909.08593, §2.2).
#pragma once

#include "data/types.h"
#include "observe/metrics.h"

namespace tandem {

struct KlControlOptions {
  bool enable = false;    // algorithm.use_kl_in_reward
  bool adaptive = false;  // fixed: the coefficient stays
  double kl_coef = 0.001;
  double target_kl = 0.1;  // a token
  double horizon = 10000;  // samples in which a doubled KL moves the coefficient by a factor of about e^0.2
};

class KlController {
 public:
  explicit KlController(const KlControlOptions& options) : options_(options), coefficient_(options.kl_coef) {}

  double coefficient() const { return options_.enable ? coefficient_ : 0; }

  // Given a step's samples, moves the coefficient for the next one:
  // β · (1 + clip(KL / target − 1, ±0.2) · samples / horizon), KL being the mean over samples of their mean over
  // tokens. Returns actor/reward_kl_penalty and the coefficient that this step used; nothing where KL is not in the
  // reward.
  Metrics observe(const RolloutBatch& batch);

  void restore(double coefficient) { coefficient_ = coefficient; }
  double state() const { return coefficient_; }

 private:
  KlControlOptions options_;
  double coefficient_;
};

}  // namespace tandem
