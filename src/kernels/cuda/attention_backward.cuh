// What the backward kernels share. With P = exp(S · scale − logsumexp), dP = dout · vᵀ and delta = Σ out · dout:
//   dS = P ∘ (dP − delta),  dq = scale · dS · k,  dk = scale · dSᵀ · q,  dv = Pᵀ · dout
// (Dao 2023, arXiv:2307.08691). One kernel goes over tiles of keys and sums over queries in the order of the tile's
// runs, head after head; another goes over tiles of queries and sums over keys. Both recompute P; nothing is atomic.
#pragma once

#include "kernels/cuda/attention.h"
#include "kernels/cuda/attention_numerics.cuh"
#include "kernels/cuda/attention_tile.cuh"

namespace tandem::cuda {

constexpr int kStep = 64;  // queries (or keys) that a block takes at a time

struct BackwardArgs {
  PackedAttentionBackward p;
  float2* stats_HT;  // of a query row: logsumexp · log2 e, and delta
  int* counters;     // of the two work queues

  __device__ __forceinline__ int group() const { return p.shape.heads / p.shape.kv_heads; }
  __device__ __forceinline__ int64_t dout_stride() const {
    return static_cast<int64_t>(p.shape.heads) * p.shape.head_dim;
  }
};

cudaError_t backward_wgmma(const BackwardArgs& args, const AttentionDevice& device, cudaStream_t stream);
cudaError_t backward_mma(const BackwardArgs& args, cudaStream_t stream);

// Row of a packed sequence's position.
__device__ __forceinline__ int row_of(const PackedSequence& s, int position) {
  return position < s.prefix_len ? s.prefix_row + position : s.own_row + position - s.prefix_len;
}

// The keys kStep · step … of a sequence, as rows of k or v; those from `end` on become zeros.
template <int D>
__device__ __forceinline__ void load_keys(const TileThread<D>& thread, const bf16* base, int64_t stride,
                                          const PackedSequence& sequence, int step, int end, uint32_t target) {
  using Thread = TileThread<D>;
  target += thread.offset(kStep * 128);
  base += thread.piece * 8;
#pragma unroll 4
  for (int i = 0; i < kStep / Thread::kRowsPerPass; ++i) {
    const int key = step * kStep + i * Thread::kRowsPerPass + thread.row;
    const bool keep = key < end;
    copy_async_or_zero(target + i * Thread::kPassBytes, base + (keep ? row_of(sequence, key) : 0) * stride, keep);
  }
}

// Scores of 16 keys × 64 queries become P; `first_query` − `first_key` is the distance of column 0 to the lane's row g.
__device__ __forceinline__ void weights_by_column(float (&s)[32], const float2* stats, float scale_log2, int distance,
                                                  int t) {
  const bool diagonal = distance < 8;
#pragma unroll
  for (int j = 0; j < 8; ++j)
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int column = 8 * j + 2 * t + e;
      const float shift = stats[column].x;
      float& a = s[4 * j + e];
      float& b = s[4 * j + 2 + e];
      a = exp2_approx(fmaf(a, scale_log2, -shift));
      b = exp2_approx(fmaf(b, scale_log2, -shift));
      if (diagonal) {
        if (column + distance < 0) a = 0.0f;
        if (column + distance < 8) b = 0.0f;
      }
    }
}
// dP becomes dS, given P as the packed fragments that dv was made of: the fp32 P would cost 32 registers more.
__device__ __forceinline__ void gradient_by_column(const uint32_t (&weights)[16], float (&dp)[32], const float2* stats,
                                                   int t) {
#pragma unroll
  for (int j = 0; j < 8; ++j)
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const float delta = stats[8 * j + 2 * t + e].y;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint32_t pair = weights[2 * j + half];
        const float weight = __uint_as_float(e == 0 ? pair << 16 : pair & 0xffff0000u);
        float& x = dp[4 * j + 2 * half + e];
        x = weight * (x - delta);
      }
    }
}
// The same for 16 queries × 64 keys: scores become P. `distance` is the lane's row g minus the key of column 0.
__device__ __forceinline__ void weights_by_row(float (&s)[32], const float2 (&stats)[2], float scale_log2, int distance,
                                               int t) {
  const bool diagonal = distance < kStep;
#pragma unroll
  for (int j = 0; j < 8; ++j)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int half = e >> 1, column = 8 * j + 2 * t + (e & 1);
      float& weight = s[4 * j + e];
      weight = exp2_approx(fmaf(weight, scale_log2, -stats[half].x));
      if (diagonal && column > distance + 8 * half) weight = 0.0f;
    }
}
__device__ __forceinline__ void gradient_by_row(const float (&weights)[32], float (&dp)[32], const float2 (&stats)[2]) {
#pragma unroll
  for (int j = 0; j < 32; ++j) dp[j] = weights[j] * (dp[j] - stats[j >> 1 & 1].y);
}

__device__ __forceinline__ void pack_fragments(const float (&s)[32], uint32_t (&fragments)[16]) {
#pragma unroll
  for (int j = 0; j < 16; ++j) fragments[j] = pack_bf16(s[2 * j], s[2 * j + 1]);
}

}  // namespace tandem::cuda
