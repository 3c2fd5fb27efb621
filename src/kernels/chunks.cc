#include "kernels/chunks.h"

namespace tandem::kernels {

std::vector<int64_t> chunk_starts(std::span<const int64_t> sizes, int64_t chunk) {
  std::vector<int64_t> starts{0};
  for (const int64_t size : sizes) starts.push_back(starts.back() + (size + chunk - 1) / chunk);
  return starts;
}

}  // namespace tandem::kernels
