// Cuts tensors of any sizes into chunks of at most `chunk` elements. Torch-free.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tandem::kernels {

// The number of chunks before each tensor, and at the end of all. An empty tensor has none.
std::vector<int64_t> chunk_starts(std::span<const int64_t> sizes, int64_t chunk);

}  // namespace tandem::kernels
