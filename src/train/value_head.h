// A decoder's one number a token in training: the critic's value, the reward model's score.
#pragma once

#include <functional>
#include <span>

#include "train/batching.h"

namespace tandem {

// The value of each packed row, [R, 1] on the CPU.
at::Tensor row_values(const Decoder& decoder, const at::Tensor& normed_RE);

// Given the values of a packed batch's rows, adds d loss / d value of each into `slope`, which is 0 at first.
using RowSlopes =
    std::function<void(size_t first, const PackedBatch& batch, std::span<const float> value, std::span<float> slope)>;

// Forward and backward of final norm and value head; adds into `gradients`, which must outlive it as `decoder` must.
HeadPass value_head_pass(const Decoder& decoder, RowSlopes slopes, DecoderWeights& gradients);

}  // namespace tandem
