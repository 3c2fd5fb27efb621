// Σ over the vocabulary of the squared probabilities at each response token: what optimal_token_baseline weighs by.
#pragma once

#include <span>
#include <vector>

#include "train/packing.h"

namespace tandem {

// One value a response token of every item, at its temperature, by the training forward.
std::vector<std::vector<float>> packed_squared_probs(const Decoder& decoder, std::span<const PackItem> items,
                                                     std::span<const double> temperatures, int64_t max_micro_tokens);

}  // namespace tandem
