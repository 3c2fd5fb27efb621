// How each architecture's parameters lie on a mesh: the data that layouts, resharding and sharded checkpoints plan
// from.
#pragma once

#include "model/model_config.h"
#include "parallel/placement.h"

namespace tandem {

// Heads are cut by groups of query heads that share a key head; the inner width of the MLP and the vocabulary fall into
// this many pieces.
inline constexpr int64_t kTpPieces = 8;

// In the order of parameters() (decoder_weights.h), under its names.
ParameterList placements(const ModelConfig& config);

// ConfigError saying what does not fit: more stages than blocks, more tp ranks than key heads or pieces.
void check_layout(const ModelConfig& config, const Layout& layout);

}  // namespace tandem
