#include "kernels/cuda/sampler.h"

#include "kernels/cuda/narrowed_draw.cuh"
#include "kernels/cuda/sampler_row.cuh"

namespace tandem::cuda {
namespace {

constexpr int kDrawWarps = 2;

__device__ double inclusive_scan(double x) {
  const int lane = threadIdx.x % kWarp;
#pragma unroll
  for (int offset = 1; offset < kWarp; offset *= 2) {
    const double below = __shfl_up_sync(kAllLanes, x, offset);
    if (lane >= offset) x += below;
  }
  return x;
}

// The lowest id whose scaled logit is `top`.
__device__ int32_t likeliest(const SamplerRow& r, const Drawable& blocks, float top) {
  const int lane = threadIdx.x % kWarp;
  const int64_t count = num_blocks(r.vocabulary);
  int32_t block = INT32_MAX;
  for (int64_t b = lane; b < count; b += kWarp)
    if (blocks.max[b] == top) block = min(block, static_cast<int32_t>(b));
  block = __reduce_min_sync(kAllLanes, block);
  int32_t best = INT32_MAX;
  for (int i = 0; i < kQuadsPerLane; ++i) {
    const int64_t id = first_id(block) + i * kWarp * kQuad;
    float x[kQuad];
    r.scaled_quad(id, x);
#pragma unroll
    for (int j = 0; j < kQuad; ++j)
      if (x[j] == top) best = min(best, static_cast<int32_t>(id + j));
  }
  return __reduce_min_sync(kAllLanes, best);
}

// The block that holds the goal, and what of the goal is left for it, in units of its own sum. Rounding may leave the
// goal past the end: the last block of any weight is then the one.
struct BlockGoal {
  int64_t block = 0;
  double goal = 0;
};
__device__ BlockGoal find_block(const SamplerRow& r, const Drawable& blocks, float top, double uniform) {
  const int lane = threadIdx.x % kWarp;
  const int64_t count = num_blocks(r.vocabulary);
  const auto scale = [&](int64_t b) { return exp(static_cast<double>(blocks.max[b]) - top); };
  const auto weight = [&](int64_t b) { return b < count && blocks.sum[b] > 0 ? blocks.sum[b] * scale(b) : 0.0; };
  double total = 0;
  for (int64_t base = 0; base < count; base += kWarp)
    total += __shfl_sync(kAllLanes, inclusive_scan(weight(base + lane)), kWarp - 1);
  const double goal = uniform * total;
  double before = 0;
  BlockGoal found;
  for (int64_t base = 0; base < count; base += kWarp) {
    const double mine = weight(base + lane), sum = before + inclusive_scan(mine);
    const unsigned past = __ballot_sync(kAllLanes, mine > 0 && sum > goal), any = __ballot_sync(kAllLanes, mine > 0);
    if (any != 0) {
      const int chosen = past != 0 ? __ffs(past) - 1 : 31 - __clz(any);
      found.block = base + chosen;
      found.goal = (goal - __shfl_sync(kAllLanes, sum - mine, chosen)) / scale(found.block);
      if (past != 0) return found;
    }
    before = __shfl_sync(kAllLanes, sum, kWarp - 1);
  }
  return found;
}

// The first id of the block at which the running sum passes the goal, else its last of any weight.
__device__ int32_t find_id(const SamplerRow& r, const Drawable& blocks, const BlockGoal& where) {
  const float top = blocks.max[where.block];
  float weights[kQuadsPerLane][kQuad];
#pragma unroll
  for (int i = 0; i < kQuadsPerLane; ++i) {
    r.scaled_quad(first_id(where.block) + i * kWarp * kQuad, weights[i]);
#pragma unroll
    for (int j = 0; j < kQuad; ++j) weights[i][j] = weights[i][j] > kLowest ? __expf(weights[i][j] - top) : 0.0f;
  }
  double before = 0;
  int32_t last = -1;
#pragma unroll
  for (int i = 0; i < kQuadsPerLane; ++i) {
    const int64_t id = first_id(where.block) + i * kWarp * kQuad;
    const float(&x)[kQuad] = weights[i];
    double sums[kQuad], sum = 0;
#pragma unroll
    for (int j = 0; j < kQuad; ++j) sums[j] = sum += x[j];
    const double start = before + inclusive_scan(sum) - sum;
    int32_t past = INT32_MAX, weighty = -1;
#pragma unroll
    for (int j = kQuad - 1; j >= 0; --j) {
      if (x[j] <= 0) continue;
      weighty = max(weighty, static_cast<int32_t>(id + j));
      if (start + sums[j] > where.goal) past = static_cast<int32_t>(id + j);
    }
    past = __reduce_min_sync(kAllLanes, past);
    if (past != INT32_MAX) return past;
    last = max(last, __reduce_max_sync(kAllLanes, weighty));
    before = __shfl_sync(kAllLanes, start + sum, kWarp - 1);
  }
  return last;
}

// A warp draws from one row that nothing narrows.
__global__ void __launch_bounds__(kDrawWarps* kWarp)
    draw_kernel(const SamplerInputs in, const SamplerOutputs out, const BlockStats* __restrict__ parts, bool aligned) {
  __shared__ Drawable shared[kDrawWarps];
  const int64_t row = int64_t{blockIdx.x} * kDrawWarps + threadIdx.x / kWarp;
  if (row >= in.logits.rows || narrows(in.rows_R[row], in.logits.vocabulary)) return;
  const SamplerRow r = sampler_row(in, out.stats, row, aligned);
  Drawable& blocks = shared[threadIdx.x / kWarp];
  int32_t id = kNotFinite;
  if (finite(r)) {
    const float top = load_drawable(r, parts, blocks);
    if (top == kLowest)
      id = kAllBarred;
    else if (in.rows_R[row].greedy != 0)
      id = likeliest(r, blocks, top);
    else
      id = find_id(r, blocks, find_block(r, blocks, top, uniform_of(in, row)));
  }
  if (threadIdx.x % kWarp == 0) report(r, out, id);
}

}  // namespace

size_t sampler_workspace_bytes(int64_t rows, int64_t vocabulary) { return row_stats_workspace_bytes(rows, vocabulary); }

cudaError_t sample(const SamplerInputs& in, const SamplerOutputs& out, void* workspace, cudaStream_t stream) {
  cudaError_t status = row_stats(in.logits, in.inv_temperature_R, out.stats, workspace, stream);
  if (status != cudaSuccess || in.logits.rows == 0) return status;
  const auto* parts = static_cast<const BlockStats*>(workspace);
  const bool aligned = quads_aligned(in.logits);
  draw_kernel<<<static_cast<unsigned>(ceil_div(in.logits.rows, kDrawWarps)), kDrawWarps * kWarp, 0, stream>>>(
      in, out, parts, aligned);
  status = cudaGetLastError();
  return status == cudaSuccess && in.any_narrowing ? draw_narrowed(in, out, parts, aligned, stream) : status;
}

}  // namespace tandem::cuda
