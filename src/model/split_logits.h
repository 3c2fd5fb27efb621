// Log-probs and draws from logits of which every tensor-parallel rank has some columns. What crosses are a row's
// maximum, the sums of its pieces and single logits, never rows. A sum over the vocabulary is made of the same pieces
// in the same order whoever has them, so its bits do not depend on the number of ranks. All ranks call the same
// functions with their own columns of the same rows. CPU only.
#pragma once

#include <span>
#include <vector>

#include "kernels/kernels.h"
#include "model/tensor_split.h"

namespace tandem {

struct SplitRow {
  std::span<const float> own;  // this rank's columns
  float inverse_temperature;
};

struct SplitStats {
  std::vector<kernels::RowStats> rows;
  std::vector<std::vector<double>> pieces;  // by row and piece: Σ exp(scaled logit − max)
};
SplitStats split_stats(TensorSplit& split, std::span<const SplitRow> rows, bool with_entropy);

// An id and its logit; every rank proposes one a row (or none: id −1), and all get the one of the greatest logit, of
// equals the lowest id.
struct Proposal {
  float logit;
  int32_t id;
};
std::vector<Proposal> greatest(TensorSplit& split, const std::vector<Proposal>& own);

// What this rank proposes as the id at which the running sum of a row's softmax passes `uniform`: its own if it lies in
// one of its pieces.
Proposal propose_inverse(const TensorSplit& split, const SplitRow& row, const SplitStats& stats, size_t index,
                         double uniform);

// kernels::target_logprobs and its way back; `own_RV` is used up and becomes the gradient of this rank's columns.
void split_target_logprobs(TensorSplit& split, const at::Tensor& own_RV, std::span<const float> inverse_temperature_R,
                           std::span<const kernels::LogitTarget> targets, bool with_entropy, kernels::LogitStats& stats,
                           std::span<kernels::TargetStats> out);
at::Tensor split_target_logprobs_backward(const TensorSplit& split, at::Tensor& own_RV,
                                          std::span<const float> inverse_temperature_R,
                                          std::span<const kernels::LogitTarget> targets,
                                          const kernels::LogitStats& stats,
                                          std::span<const kernels::TargetSlopes> slopes);

}  // namespace tandem
