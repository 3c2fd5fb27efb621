// Where each projection of a block lies, for lora.cc and its files.
#pragma once

#include <string_view>
#include <vector>

#include "model/decoder_weights.h"

namespace tandem {

struct AdapterPlace {
  std::string_view module;
  Linear LayerWeights::*linear;
  int64_t first, outputs, inputs;  // its rows of the layer's weight, and that weight's columns
};
std::vector<AdapterPlace> adapter_places(const ModelConfig& config);  // of one block, in the order of the forward pass

// Adapters of these modules for every block, all 0.
DecoderWeights zero_adapters(const ModelConfig& config, const std::vector<std::string_view>& modules, int64_t rank,
                             double alpha);

}  // namespace tandem
