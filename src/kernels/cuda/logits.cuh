// What the head and the sampler share: how a row of logits is read, scaled and summed.
#pragma once

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/head.h"

namespace tandem::cuda {

// Below every finite logit that matters, so that a block of −inf alone has a maximum to subtract.
constexpr float kLowest = -3.0e38f;

constexpr int kQuad = 4;                                      // logits in 16 bytes
constexpr int kQuadsPerLane = kStatsBlock / (kWarp * kQuad);  // a warp reads a block in as many steps
constexpr int64_t kMaxBlocks = kMaxVocabulary / kStatsBlock;

// Of one block, relative to its own maximum.
struct alignas(16) BlockStats {
  float max, sum, dot;  // dot: Σ exp(x) · x
  float unused;
};

__host__ __device__ constexpr int64_t num_blocks(int64_t vocabulary) { return ceil_div(vocabulary, kStatsBlock); }

__device__ inline float scaled(float logit, float inv_temperature) { return __fmul_rn(logit, inv_temperature); }

__device__ inline float logprob_of(float logit, float inv_temperature, float max, float log_sum) {
  return __fsub_rn(__fsub_rn(scaled(logit, inv_temperature), max), log_sum);
}

// Four logits from `index` on; past the row's end −inf.
template <bool kAligned>
__device__ inline float4 load_quad(const float* row, int64_t index, int64_t size) {
  if (kAligned && index + kQuad <= size) return *reinterpret_cast<const float4*>(row + index);
  const auto at = [&](int64_t i) { return i < size ? row[i] : -INFINITY; };
  return {at(index), at(index + 1), at(index + 2), at(index + 3)};
}

// The ids of a block that a lane holds: quad i begins at first_id + 128 · i.
__device__ inline int64_t first_id(int64_t block) { return block * kStatsBlock + threadIdx.x % kWarp * kQuad; }

inline bool quads_aligned(const LogitsView& logits) {
  return logits.row_stride % kQuad == 0 && reinterpret_cast<uintptr_t>(logits.data) % 16 == 0;
}
inline bool supported(const LogitsView& logits) {
  return logits.vocabulary > 0 && logits.vocabulary <= kMaxVocabulary && logits.row_stride >= logits.vocabulary;
}

}  // namespace tandem::cuda
