// A row as the sampler's kernels see it: which ids may be drawn, what its blocks weigh, how a draw is reported.
#pragma once

#include "kernels/cuda/logits.cuh"
#include "kernels/cuda/philox.cuh"
#include "kernels/cuda/sampler.h"

namespace tandem::cuda {

struct SamplerRow {
  const float* logits;
  int64_t row, vocabulary, drawable;
  float inv_temperature, max, log_sum;
  const int32_t* barred;
  int num_barred;
  bool aligned;

  __device__ bool may_draw(int64_t id) const {
    if (id >= drawable) return false;
    for (int i = 0; i < num_barred; ++i)
      if (barred[i] == id) return false;
    return true;
  }
  __device__ float4 quad(int64_t id) const {
    return aligned ? load_quad<true>(logits, id, vocabulary) : load_quad<false>(logits, id, vocabulary);
  }
  // Scaled logits of four neighbours; kLowest where an id may not be drawn or has no probability.
  __device__ void scaled_quad(int64_t id, float (&x)[kQuad]) const {
    const float4 v = quad(id);
    x[0] = v.x, x[1] = v.y, x[2] = v.z, x[3] = v.w;
#pragma unroll
    for (int j = 0; j < kQuad; ++j) x[j] = may_draw(id + j) ? fmaxf(scaled(x[j], inv_temperature), kLowest) : kLowest;
  }
};

__device__ inline bool narrows(const SamplingRow& s, int64_t vocabulary) {
  return s.greedy == 0 && (s.top_p < 1.0 || s.min_p > 0 || (s.top_k > 0 && s.top_k < vocabulary));
}

__device__ inline SamplerRow sampler_row(const SamplerInputs& in, const RowStats& stats, int64_t row, bool aligned) {
  const SamplingRow& s = in.rows_R[row];
  SamplerRow r;
  r.logits = in.logits.data + row * in.logits.row_stride;
  r.row = row, r.vocabulary = in.logits.vocabulary, r.drawable = min(in.num_drawable, in.logits.vocabulary);
  r.inv_temperature = in.inv_temperature_R[row], r.max = stats.max_R[row], r.log_sum = stats.log_sum_R[row];
  r.barred = in.barred_ids + s.barred_offset;
  r.num_barred = static_cast<uint32_t>(in.positions_R[row]) < s.min_tokens ? min(s.num_barred, kMaxBarredIds) : 0;
  r.aligned = aligned;
  return r;
}

__device__ inline double uniform_of(const SamplerInputs& in, int64_t row) {
  const SamplingRow& s = in.rows_R[row];
  return uniform_for(s.philox_key, s.prompt_id, s.sample_index, static_cast<uint32_t>(in.positions_R[row]));
}

__device__ inline bool finite(const SamplerRow& r) { return isfinite(r.max) && isfinite(r.log_sum); }

// By one thread.
__device__ inline void report(const SamplerRow& r, const SamplerOutputs& out, int32_t id) {
  float logprob = NAN;
  if (id >= 0) logprob = logprob_of(r.logits[id], r.inv_temperature, r.max, r.log_sum);
  if (id >= 0 && !isfinite(logprob)) id = kNotFinite;
  if (out.ids_R != nullptr) out.ids_R[r.row] = id;
  if (out.next_ids_R != nullptr) out.next_ids_R[r.row] = max(id, 0);
  if (out.logprobs_R != nullptr) out.logprobs_R[r.row] = id >= 0 ? logprob : NAN;
}

// What may be drawn from each block: its maximum and Σ exp(x − maximum). From the statistics' blocks, except those that
// hold ids which may not be drawn: they are read again.
struct Drawable {
  float max[kMaxBlocks];
  float sum[kMaxBlocks];
};

// By a warp.
__device__ inline void recompute_block(const SamplerRow& r, int64_t block, Drawable& blocks) {
  float top = kLowest, sum = 0;
  float x[kQuadsPerLane][kQuad];
#pragma unroll
  for (int i = 0; i < kQuadsPerLane; ++i) {
    r.scaled_quad(first_id(block) + i * kWarp * kQuad, x[i]);
#pragma unroll
    for (int j = 0; j < kQuad; ++j) top = fmaxf(top, x[i][j]);
  }
  top = warp_max(top);
#pragma unroll
  for (int i = 0; i < kQuadsPerLane; ++i)
#pragma unroll
    for (int j = 0; j < kQuad; ++j)
      if (x[i][j] > kLowest) sum += __expf(x[i][j] - top);
  sum = lanes_sum<kWarp>(sum);
  if (threadIdx.x % kWarp == 0) blocks.max[block] = top, blocks.sum[block] = sum;
}

// By a warp; returns the greatest scaled logit that may be drawn (kLowest: none).
__device__ inline float load_drawable(const SamplerRow& r, const BlockStats* parts, Drawable& blocks) {
  const int lane = threadIdx.x % kWarp;
  const int64_t count = num_blocks(r.vocabulary), whole = r.drawable / kStatsBlock;
  for (int64_t b = lane; b < count; b += kWarp) {
    const BlockStats part = parts[r.row * count + b];
    blocks.max[b] = b < whole ? part.max : kLowest, blocks.sum[b] = b < whole ? part.sum : 0.0f;
  }
  __syncwarp();
  if (r.drawable % kStatsBlock != 0) recompute_block(r, whole, blocks);
  for (int i = 0; i < r.num_barred; ++i)
    if (r.barred[i] >= 0 && r.barred[i] < r.drawable) recompute_block(r, r.barred[i] / kStatsBlock, blocks);
  __syncwarp();
  float top = kLowest;
  for (int64_t b = lane; b < count; b += kWarp) top = fmaxf(top, blocks.max[b]);
  return warp_max(top);
}

}  // namespace tandem::cuda
