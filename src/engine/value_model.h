// Loading a decoder with a value head: a critic or a reward model.
#pragma once

#include <filesystem>
#include <memory>

#include "model/decoder.h"

namespace tandem {

// Of a folder without score.weight (a policy's) the trunk is taken, its own head left out, and a new value head drawn:
// normal(0, 0.02) from `seed`, as in transformers. fp32 on the CPU, bf16 on a GPU.
std::unique_ptr<Decoder> load_value_decoder(const std::filesystem::path& folder, int64_t max_model_len, uint64_t seed,
                                            at::Device device = at::kCPU, bool trained = false);

}  // namespace tandem
