// The least time that work can take on a device whose best copy and matrix product were measured: the floor a figure is
// compared with. Bytes and operations are counted for the model's shape; everything but the named is taken as free.
#pragma once

#include <cstdint>

#include "model/model_config.h"

namespace tandem {

struct Ceilings {
  double bytes_per_second = 0;  // read plus written by a large copy
  double flops_per_second = 0;  // of a large matrix product
};

struct SampledWork {
  int64_t prompts, samples, prompt_tokens, new_tokens;  // samples a prompt; tokens of each
};

// Reads the weights once a pass and every key and value once, a prompt's once for all its samples.
double rollout_floor_seconds(const ModelConfig& config, const SampledWork& work, int64_t value_bytes,
                             const Ceilings& ceilings);

// Forward and backward: three products a weight and token, and attention over the causal half. Nothing is recomputed;
// each sample is computed with a prompt of its own.
double training_floor_seconds(const ModelConfig& config, const SampledWork& work, const Ceilings& ceilings);

}  // namespace tandem
