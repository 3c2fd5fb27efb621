// The arithmetic of the forward that every path shares; all of it per row and in a fixed order.
//
// A warp holds 16 query rows in the accumulator layout of mma.sync m16n8: lane 4g+t has, for block j of 8 columns,
// s[4j], s[4j+1] = row g, columns 8j+2t, 8j+2t+1, and s[4j+2], s[4j+3] = row g+8. wgmma's warps hold theirs likewise.
// half 0 is row g, half 1 row g+8. Roundings are spelled out, so that no compiler contracts one path only.
#pragma once

#include <cmath>

#include "kernels/cuda/attention_plan.h"
#include "kernels/cuda/attention_ptx.cuh"

namespace tandem::cuda {

constexpr float kLog2e = 1.4426950408889634f;

__device__ __forceinline__ float finite_or_zero(float m) { return m == -INFINITY ? 0.0f : m; }

// Scores of a chunk become exp2(scale_log2 · (s − max)); gives their max and sum.
__device__ __forceinline__ void softmax_chunk(float (&s)[64], int half, float scale_log2, float& max, float& sum) {
  const int o = half * 2;
  float m0 = fmaxf(s[o], s[o + 1]), m1 = fmaxf(s[4 + o], s[4 + o + 1]);
#pragma unroll
  for (int j = 2; j < 16; j += 2) {
    m0 = fmaxf(m0, fmaxf(s[4 * j + o], s[4 * j + o + 1]));
    m1 = fmaxf(m1, fmaxf(s[4 * j + 4 + o], s[4 * j + 4 + o + 1]));
  }
  max = fmaxf(m0, m1);
  max = fmaxf(max, __shfl_xor_sync(~0u, max, 1));
  max = fmaxf(max, __shfl_xor_sync(~0u, max, 2));
  const float shift = -__fmul_rn(finite_or_zero(max), scale_log2);
  float l0 = 0.0f, l1 = 0.0f;
#pragma unroll
  for (int j = 0; j < 16; ++j) {
    float& a = s[4 * j + o];
    float& b = s[4 * j + o + 1];
    a = exp2_approx(__fmaf_rn(a, scale_log2, shift));
    b = exp2_approx(__fmaf_rn(b, scale_log2, shift));
    l0 = __fadd_rn(l0, a);
    l1 = __fadd_rn(l1, b);
  }
  sum = __fadd_rn(l0, l1);
  sum = __fadd_rn(sum, __shfl_xor_sync(~0u, sum, 1));
  sum = __fadd_rn(sum, __shfl_xor_sync(~0u, sum, 2));
}

// The one merge formula: a running (max, sum, out) with the next chunk's, chunks in ascending order.
struct Merge {
  float keep, add;
  __device__ __forceinline__ Merge(float& max, float& sum, float chunk_max, float chunk_sum, float scale_log2) {
    const float top = fmaxf(max, chunk_max), reference = finite_or_zero(top);
    keep = exp2_approx(__fmul_rn(__fsub_rn(max, reference), scale_log2));
    add = exp2_approx(__fmul_rn(__fsub_rn(chunk_max, reference), scale_log2));
    sum = __fmaf_rn(chunk_sum, add, __fmul_rn(sum, keep));
    max = top;
  }
  __device__ __forceinline__ float operator()(float out, float chunk_out) const {
    return __fmaf_rn(chunk_out, add, __fmul_rn(out, keep));
  }
};

__device__ __forceinline__ float inverse(float sum) { return sum > 0.0f ? __fdividef(1.0f, sum) : 0.0f; }
__device__ __forceinline__ float log_sum(float max, float sum, float scale) {
  return __fmaf_rn(max, scale, __logf(sum));
}

// Hides the keys of chunk `chunk` that a warp's rows may not see: row g stands at position `pos`, row g+8 at pos + 8.
__device__ __forceinline__ void mask_chunk(float (&s)[64], int pos, int chunk, int t) {
  const int limit = pos - chunk * kChunk - 2 * t;
#pragma unroll
  for (int j = 0; j < 16; ++j) {
    if (8 * j > limit) s[4 * j] = -INFINITY;
    if (8 * j + 1 > limit) s[4 * j + 1] = -INFINITY;
    if (8 * j > limit + 8) s[4 * j + 2] = -INFINITY;
    if (8 * j + 1 > limit + 8) s[4 * j + 3] = -INFINITY;
  }
}

// Writes 32 columns (4 blocks) of row g (half 0) or g+8, given as bf16 pairs: four lanes trade 4 bytes of 4 blocks for
// the 16 bytes of one.
__device__ __forceinline__ void store_32_columns(uint32_t (&v)[4], __nv_bfloat16* row, int t, bool keep) {
#pragma unroll
  for (int bit = 1; bit < 4; bit <<= 1) {
#pragma unroll
    for (int j = 0; j < 4; ++j)
      if (!(j & bit)) {
        const bool high = t & bit;
        const uint32_t got = __shfl_xor_sync(~0u, high ? v[j] : v[j + bit], bit);
        if (high)
          v[j] = got;
        else
          v[j + bit] = got;
      }
  }
  if (keep) *reinterpret_cast<uint4*>(row + 8 * t) = make_uint4(v[0], v[1], v[2], v[3]);
}

// Row g or g+8 of an accumulator of D columns, times `factor`, as bf16.
template <int D>
__device__ __forceinline__ void store_row(const float (&o)[D / 2], int half, float factor, __nv_bfloat16* row, int t,
                                          bool keep) {
#pragma unroll
  for (int q = 0; q < D / 32; ++q) {
    uint32_t v[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int at = 16 * q + 4 * j + 2 * half;
      v[j] = pack_bf16(__fmul_rn(o[at], factor), __fmul_rn(o[at + 1], factor));
    }
    store_32_columns(v, row + 32 * q, t, keep);
  }
}

}  // namespace tandem::cuda
