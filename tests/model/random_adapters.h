// Adapters as training leaves them: both matrices different from 0.
#pragma once

#include "base/rng.h"
#include "model/lora.h"

namespace tandem {

inline void randomize(const DecoderWeights& weights, uint64_t seed, double size) {
  uint64_t stream = 0;
  for (const auto& [name, tensor] : parameters(trained(weights))) {
    Philox random(seed, ++stream);
    for (float& value : values(tensor)) value = static_cast<float>(size * random.normal());
  }
}

}  // namespace tandem
