// Advantages that need a sample's reward only, in double. Torch-free; pure functions.
#pragma once

#include <string_view>

#include "data/types.h"

namespace tandem {

enum class AdvantageEstimator {
  kGrpo,               // (R − mean of the group) / (its sample standard deviation + 1e-6)   (arXiv:2402.03300)
  kDrGrpo,             // R − mean of the group                                              (arXiv:2503.20783)
  kGrpoPassK,          // the group's best: (best − second) / (std + 1e-6); the others 0     (arXiv:2503.19595)
  kRloo,               // R − mean of the group's others                                     (arXiv:2402.14740)
  kOpo,                // R − mean of the group weighted by response length                  (arXiv:2505.23585)
  kReinforcePlusPlus,  // R whitened over all response tokens                 (arXiv:2501.03262)
  kReinforcePlusPlusBaseline,  // R − mean of the group, whitened over all response tokens
};

// verl's names; `by_std` is algorithm.norm_adv_by_std_in_grpo. ConfigError for an unknown one.
AdvantageEstimator parse_advantage_estimator(std::string_view name, bool by_std);

// Sets `advantage` of every sample from `reward`. Groups are neighbours with the same `group`. Equal rewards give
// exactly 0; a group of one gives its reward (grpo, rloo, as in verl) or 0 where the baseline is itself (opo).
void estimate_advantages(RolloutBatch& batch, AdvantageEstimator estimator);

}  // namespace tandem
