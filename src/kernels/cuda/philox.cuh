// base/rng.h's philox4x32 and uniform_for on the device.
#pragma once

#include <cstdint>

namespace tandem::cuda {

__device__ inline void philox4x32(uint32_t (&c)[4], uint64_t key) {
  uint32_t k[2] = {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)};
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const uint32_t high0 = __umulhi(0xD2511F53u, c[0]), low0 = 0xD2511F53u * c[0];
    const uint32_t high1 = __umulhi(0xCD9E8D57u, c[2]), low1 = 0xCD9E8D57u * c[2];
    c[0] = high1 ^ c[1] ^ k[0], c[1] = low1, c[2] = high0 ^ c[3] ^ k[1], c[3] = low0;
    k[0] += 0x9E3779B9u, k[1] += 0xBB67AE85u;
  }
}

__device__ inline double uniform_for(uint64_t key, uint64_t prompt_id, uint32_t sample_index, uint32_t position) {
  uint32_t c[4] = {static_cast<uint32_t>(prompt_id), static_cast<uint32_t>(prompt_id >> 32), sample_index, position};
  philox4x32(c, key);
  const uint64_t bits = (uint64_t{c[0]} << 32 | c[1]) >> 12;
  return (static_cast<double>(bits) + 0.5) * 0x1p-52;
}

}  // namespace tandem::cuda
