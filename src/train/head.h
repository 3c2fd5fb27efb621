// The last linear layer and the log-softmax together, in runs of rows: tokens × vocabulary is never held. Training's
// side of the log-probs that rollout draws from; both use the same statistics of the same rows of logits.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "model/decoder.h"
#include "train/packing.h"

namespace tandem {

using kernels::TargetSlopes;
using kernels::TargetStats;

// temperatures: one an item of the packed batch. Targets that share a row must share its temperature.
std::vector<TargetStats> head_forward(const Decoder& decoder, const at::Tensor& x_TE, const PackedBatch& batch,
                                      std::span<const double> temperatures, bool with_entropy);

// The loss, given a target's index and stats: called once a target, in order, from one thread.
using TargetLoss = std::function<TargetSlopes(size_t target, const TargetStats& stats)>;

// Forward, loss and backward of each run of rows in one pass over the vocabulary. Returns the gradient of x_TE and adds
// into the head's and final norm's gradients.
at::Tensor head_forward_backward(const Decoder& decoder, const at::Tensor& x_TE, const PackedBatch& batch,
                                 std::span<const double> temperatures, bool with_entropy, const TargetLoss& loss,
                                 DecoderWeights& gradients);

}  // namespace tandem
