// How this folder's records cross worker groups; see control/dispatch.h.
#pragma once

#include "control/dispatch.h"
#include "engine/engine.h"
#include "reward/reward_worker.h"

namespace tandem {

template <>
struct Dispatch<ScoredBatch> {
  static ScoredBatch merge(const std::vector<ScoredBatch>& parts) {
    ScoredBatch whole;
    for (const ScoredBatch& part : parts) {
      whole.samples.insert(whole.samples.end(), part.samples.begin(), part.samples.end());
      whole.extras.insert(whole.extras.end(), part.extras.begin(), part.extras.end());
    }
    return whole;
  }
};

template <>
struct Dispatch<CorrectedBatch> {
  static CorrectedBatch merge(const std::vector<CorrectedBatch>& parts) {
    std::vector<RolloutBatch> samples;
    for (const CorrectedBatch& part : parts) samples.push_back(part.samples);
    return {Dispatch<RolloutBatch>::merge(samples), parts.front().metrics};
  }
};

}  // namespace tandem
