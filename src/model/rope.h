// Frequencies of rotary position embedding (Su et al., arXiv 2104.09864), with the scalings that published models use:
// linear (position interpolation, arXiv 2306.15595), yarn (arXiv 2309.00071) and llama3 (Meta's Llama 3.1 release; the
// formula is apply_scaling in its reference code). All in double; pure functions.
#pragma once

#include <vector>

#include "model/model_config.h"

namespace tandem {

// Radians a token, for pairs i = 0 .. head_dim/2 - 1: position p turns pair (i, i + head_dim/2) by p * f[i].
std::vector<double> inverse_frequencies(const RopeConfig& rope, int64_t head_dim);
std::vector<double> inverse_frequencies(const ModelConfig& config);

// What cos and sin are multiplied by: 1 but for yarn, where it is 0.1 ln(factor) + 1 unless the config says otherwise.
double rope_attention_factor(const RopeConfig& rope);

}  // namespace tandem
