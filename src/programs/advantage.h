// Advantages that need a sample's rewards only, in double: every token of a sample has the same. Torch-free; pure
// functions. Those that need token-level data are in train/token_advantage.h.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/types.h"
#include "reward/reward_worker.h"

namespace tandem {

enum class AdvantageEstimator {
  kGrpo,       // (R − mean of the group) / (its sample standard deviation + 1e-6)   (arXiv:2402.03300); without the
               // standard deviation it is Dr.GRPO's                                 (arXiv:2503.20783)
  kGrpoPassK,  // the group's best: (best − second) / (std + 1e-6), others 0          (arXiv:2503.19595)
  kRloo,       // R − mean of the group's others                                     (arXiv:2402.14740)
  kOpo,        // R − mean of the group weighted by response length                  (arXiv:2505.23585)
  kGpg,        // (R − mean of the group) · samples of the step / those with R ≠ 0    (arXiv:2504.02546)
  kGdpo,       // Σ weight · grpo of each reward key, whitened over response tokens  (arXiv:2601.05242)
  kReinforcePlusPlusBaseline,  // R − mean of the group, whitened over all response tokens  (arXiv:2501.03262)
};

// verl's names; nothing for one that is not of this kind.
std::optional<AdvantageEstimator> find_advantage_estimator(std::string_view name);

struct AdvantageOptions {
  AdvantageEstimator estimator = AdvantageEstimator::kGrpo;
  bool by_std = true;                  // algorithm.norm_adv_by_std_in_grpo, for grpo, grpo_passk and gdpo
  std::vector<std::string> gdpo_keys;  // of the reward function's extra numbers; "score" is the score itself
  std::vector<double> gdpo_weights;    // one a key; empty: 1 each
};

// Sets `advantage` of every sample from `reward` (gdpo: from the extras). Groups are neighbours with the same `group`.
// Equal rewards give exactly 0; a group of one gives its reward (grpo, rloo, gpg: as in verl) or 0 where the baseline
// is itself (opo). Lengths are trained_length: a sample whose tokens are all masked gets 0 and weighs nothing by
// length; its reward counts among its group's, as in verl. DataError where gdpo's key is missing, or where whitening
// has a single token to look at.
void estimate_advantages(ScoredBatch& batch, const AdvantageOptions& options);

}  // namespace tandem
