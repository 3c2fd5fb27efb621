#include "programs/kl_controller.h"

#include <algorithm>

namespace tandem {

Metrics KlController::observe(const RolloutBatch& batch) {
  Metrics metrics;
  if (!options_.enable) return metrics;
  double sum = 0;
  for (const Sample& sample : batch) sum += sample.trained_length == 0 ? 0 : sample.kl / sample.trained_length;
  const auto count = static_cast<double>(batch.size());
  const double kl = batch.empty() ? 0 : sum / count;
  metrics.set("actor/reward_kl_penalty", kl);
  metrics.set("actor/reward_kl_penalty_coeff", coefficient_);
  if (options_.adaptive)
    coefficient_ *= 1 + std::clamp(kl / options_.target_kl - 1, -0.2, 0.2) * count / options_.horizon;
  return metrics;
}

}  // namespace tandem
