// What log_softmax.cc does with a row of logits, for a piece of the row: where a vocabulary lies in pieces on several
// ranks, a row's maximum is that of the pieces', its sums are added up piece by piece in ascending order, and so
// neither depends on who has which pieces. On the CPU.
#pragma once

#include "kernels/kernels.h"

namespace tandem::kernels {

float scaled_max(std::span<const float> logits, float inv_temperature);

// Σ exp(x) and Σ x·exp(x), x = logits · inv_temperature − max; the second where it is asked for.
struct ExpSums {
  double total = 0, weighted = 0;
};
ExpSums exp_sums(std::span<const float> logits, float inv_temperature, float max, bool with_entropy);
RowStats stats_of(float max, const ExpSums& sums, bool with_entropy);

// The first index at which the running sum of exp(x) passes `goal`; the last of any weight if none does.
int32_t invert_sum(std::span<const float> logits, float inv_temperature, float max, double goal);

// logits_backward() of a piece that begins with id `first`; the targets are the whole row's.
void piece_backward(std::span<float> logits, int32_t first, float inv_temperature, const RowStats& stats,
                    std::span<const TargetGradient> targets, float dentropy);

}  // namespace tandem::kernels
