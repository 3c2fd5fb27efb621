// One rank in the place of several: what sharded training must equal bit for bit, on whatever device.
#pragma once

#include "model/decoder.h"
#include "parallel/communicator.h"
#include "parallel/mesh.h"

namespace tandem {

// A small model that every device's kernels take: a Qwen3 with a tied embedding, or a Llama.
ModelConfig one_rank_model(bool qwen);

// Two steps of two mini-batches, sharded by `layout` and by one rank that computes the same micro-batches rank by rank,
// each from zero: whether weights, masters and moments end with the same bits. All ranks call it; rank 0's answer
// counts.
bool trains_as_one_rank(Communicator& world, const Layout& layout, const ModelConfig& config, at::Device device);

}  // namespace tandem
