#include "kernels/cuda/head.h"

#include "kernels/cuda/logits.cuh"

namespace tandem::cuda {
namespace {

constexpr int kStatsWarps = 8;

// A warp has one block of one row in its registers: one read, no barrier.
template <bool kAligned>
__global__ void __launch_bounds__(kStatsWarps* kWarp)
    block_stats_kernel(const LogitsView logits, const float* __restrict__ inv_temperature, int64_t blocks,
                       BlockStats* __restrict__ out) {
  const int64_t groups = ceil_div(blocks, kStatsWarps), row = blockIdx.x / groups;
  const int64_t block = blockIdx.x % groups * kStatsWarps + threadIdx.x / kWarp;
  if (block >= blocks) return;
  const float* data = logits.data + row * logits.row_stride;
  float x[kQuadsPerLane][kQuad];
#pragma unroll
  for (int i = 0; i < kQuadsPerLane; ++i) {
    const float4 quad = load_quad<kAligned>(data, first_id(block) + i * kWarp * kQuad, logits.vocabulary);
    x[i][0] = quad.x, x[i][1] = quad.y, x[i][2] = quad.z, x[i][3] = quad.w;
  }
  const float scale = inv_temperature[row];
  BlockStats stats{kLowest, 0, 0, 0};
#pragma unroll
  for (int i = 0; i < kQuadsPerLane; ++i)
#pragma unroll
    for (int j = 0; j < kQuad; ++j) {
      x[i][j] = scaled(x[i][j], scale);
      stats.max = fmaxf(stats.max, x[i][j]);
    }
  stats.max = warp_max(stats.max);
#pragma unroll
  for (int i = 0; i < kQuadsPerLane; ++i)
#pragma unroll
    for (int j = 0; j < kQuad; ++j) {
      const float below = __fsub_rn(x[i][j], stats.max), e = __expf(below);
      stats.sum = __fadd_rn(stats.sum, e);
      stats.dot = __fmaf_rn(e, fmaxf(below, -1e4f), stats.dot);  // not 0 · −inf
    }
  stats.sum = lanes_sum<kWarp>(stats.sum);
  stats.dot = lanes_sum<kWarp>(stats.dot);
  if (threadIdx.x % kWarp == 0) out[row * blocks + block] = stats;
}

// A warp merges a row's blocks.
__global__ void __launch_bounds__(128)
    merge_kernel(const BlockStats* __restrict__ parts, int64_t rows, int64_t blocks, const RowStats out) {
  const int64_t row = int64_t{blockIdx.x} * (128 / kWarp) + threadIdx.x / kWarp;
  if (row >= rows) return;
  const int lane = threadIdx.x % kWarp;
  float max = kLowest;
  for (int64_t b = lane; b < blocks; b += kWarp) max = fmaxf(max, parts[row * blocks + b].max);
  max = warp_max(max);
  double total = 0, weighted = 0;
  for (int64_t b = lane; b < blocks; b += kWarp) {
    const BlockStats part = parts[row * blocks + b];
    const double below = static_cast<double>(part.max) - max, scale = exp(below);
    total += part.sum * scale;
    if (part.sum != 0) weighted += (part.dot + part.sum * below) * scale;
  }
  total = lanes_sum<kWarp>(total);
  weighted = lanes_sum<kWarp>(weighted);
  if (lane != 0) return;
  const double log_sum = log(total);
  out.max_R[row] = max;
  out.log_sum_R[row] = static_cast<float>(log_sum);
  if (out.entropy_R != nullptr) out.entropy_R[row] = static_cast<float>(log_sum - weighted / total);
}

__global__ void target_kernel(const LogitsView logits, const float* __restrict__ inv_temperature, const RowStats stats,
                              const int32_t* __restrict__ targets, float* __restrict__ out) {
  const int64_t row = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (row >= logits.rows) return;
  const int32_t target = targets[row];
  out[row] = target < 0 ? 0.0f
                        : logprob_of(logits.data[row * logits.row_stride + target], inv_temperature[row],
                                     stats.max_R[row], stats.log_sum_R[row]);
}

constexpr int kGradientThreads = 512;
constexpr int kQuadsInFlight = 4;
constexpr int64_t kGradientChunk = int64_t{kGradientThreads} * kQuadsInFlight * kQuad;

struct RowGradient {
  float scale, max, log_sum, entropy, dlogprob, dentropy;
  int64_t target;

  __device__ float at(float logit, int64_t id) const {
    const float logp = fmaxf(logprob_of(logit, scale, max, log_sum), -1e4f), p = __expf(logp);
    const float slope = -p * (dlogprob + dentropy * (logp + entropy));
    return scale * (id == target ? slope + dlogprob : slope);
  }
};

__device__ RowGradient row_gradient(int64_t row, const float* inv_temperature, const RowStats& stats,
                                    const HeadGradient& gradient) {
  RowGradient g{inv_temperature[row], stats.max_R[row], stats.log_sum_R[row], 0, 0, 0, gradient.targets_R[row]};
  if (g.target >= 0) g.dlogprob = gradient.dlogprob_R[row];
  if (gradient.dentropy_R != nullptr) g.dentropy = gradient.dentropy_R[row];
  if (g.dentropy != 0) g.entropy = stats.entropy_R[row];
  return g;
}

// kAligned: whole quads may be stored at once.
template <bool kAligned>
__device__ void store_quad(float* row, int64_t index, int64_t size, const float4& v) {
  if (kAligned && index + kQuad <= size) {
    *reinterpret_cast<float4*>(row + index) = v;
    return;
  }
  const float values[kQuad] = {v.x, v.y, v.z, v.w};
  for (int j = 0; j < kQuad && index + j < size; ++j) row[index + j] = values[j];
}
template <bool kAligned>
__device__ void store_quad(bf16* row, int64_t index, int64_t size, const float4& v) {
  if (index + kQuad <= size) {
    *reinterpret_cast<uint2*>(row + index) = {pack2(v.x, v.y), pack2(v.z, v.w)};
    return;
  }
  const float values[kQuad] = {v.x, v.y, v.z, v.w};
  for (int j = 0; j < kQuad && index + j < size; ++j) row[index + j] = __float2bfloat16_rn(values[j]);
}

// A block has one row and walks through it in chunks. The next chunk is on its way before this one is written, and no
// thread writes before all have read: so a bf16 row may overwrite the first half of its own fp32 row.
template <bool kAligned, class Out>
__global__ void __launch_bounds__(kGradientThreads, 2)
    gradient_kernel(const LogitsView logits, const float* __restrict__ inv_temperature, const RowStats stats,
                    const HeadGradient gradient, Out* out, int64_t out_stride) {
  const int64_t row = blockIdx.x, size = logits.vocabulary;
  const float* in = logits.data + row * logits.row_stride;
  Out* to = out + row * out_stride;
  const RowGradient g = row_gradient(row, inv_temperature, stats, gradient);
  const int64_t mine = threadIdx.x * kQuad;
  constexpr int64_t kStep = int64_t{kGradientThreads} * kQuad;
  if (g.dlogprob == 0 && g.dentropy == 0) {
    for (int64_t i = mine; i < size; i += kStep) store_quad<kAligned>(to, i, size, {0, 0, 0, 0});
    return;
  }
  const auto load = [&](float4(&quads)[kQuadsInFlight], int64_t chunk) {
#pragma unroll
    for (int i = 0; i < kQuadsInFlight; ++i) {
      const int64_t at = chunk + i * kStep + mine;
      if (at < size) quads[i] = load_quad<kAligned>(in, at, size);
    }
  };
  float4 now[kQuadsInFlight], next[kQuadsInFlight];
  load(now, 0);
  for (int64_t chunk = 0; chunk < size; chunk += kGradientChunk) {
    load(next, chunk + kGradientChunk);
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kQuadsInFlight; ++i) {
      const int64_t at = chunk + i * kStep + mine;
      if (at >= size) continue;
      const float4 x = now[i];
      store_quad<kAligned>(to, at, size, {g.at(x.x, at), g.at(x.y, at + 1), g.at(x.z, at + 2), g.at(x.w, at + 3)});
    }
#pragma unroll
    for (int i = 0; i < kQuadsInFlight; ++i) now[i] = next[i];
  }
}

template <class Out>
cudaError_t launch_gradient(const LogitsView& logits, const float* inv_temperature, const RowStats& stats,
                            const HeadGradient& gradient, Out* out, int64_t out_stride, cudaStream_t stream) {
  if (!supported(logits)) return cudaErrorInvalidValue;
  if (logits.rows == 0) return cudaSuccess;
  const auto kernel = quads_aligned(logits) ? gradient_kernel<true, Out> : gradient_kernel<false, Out>;
  kernel<<<static_cast<unsigned>(logits.rows), kGradientThreads, 0, stream>>>(logits, inv_temperature, stats, gradient,
                                                                              out, out_stride);
  return cudaGetLastError();
}

}  // namespace

size_t row_stats_workspace_bytes(int64_t rows, int64_t vocabulary) {
  return static_cast<size_t>(rows * num_blocks(vocabulary)) * sizeof(BlockStats);
}

cudaError_t row_stats(const LogitsView& logits, const float* inv_temperature, const RowStats& stats, void* workspace,
                      cudaStream_t stream) {
  if (!supported(logits)) return cudaErrorInvalidValue;
  if (logits.rows == 0) return cudaSuccess;
  const int64_t blocks = num_blocks(logits.vocabulary);
  auto* parts = static_cast<BlockStats*>(workspace);
  const auto kernel = quads_aligned(logits) ? block_stats_kernel<true> : block_stats_kernel<false>;
  kernel<<<static_cast<unsigned>(logits.rows * ceil_div(blocks, kStatsWarps)), kStatsWarps * kWarp, 0, stream>>>(
      logits, inv_temperature, blocks, parts);
  const cudaError_t status = cudaGetLastError();
  if (status != cudaSuccess) return status;
  merge_kernel<<<static_cast<unsigned>(ceil_div(logits.rows, 128 / kWarp)), 128, 0, stream>>>(parts, logits.rows,
                                                                                              blocks, stats);
  return cudaGetLastError();
}

cudaError_t target_logprobs(const LogitsView& logits, const float* inv_temperature, const RowStats& stats,
                            const int32_t* targets, float* logprob, cudaStream_t stream) {
  if (logits.rows == 0) return cudaSuccess;
  target_kernel<<<static_cast<unsigned>(ceil_div(logits.rows, 128)), 128, 0, stream>>>(logits, inv_temperature, stats,
                                                                                       targets, logprob);
  return cudaGetLastError();
}

cudaError_t logits_backward(const LogitsView& logits, const float* inv_temperature, const RowStats& stats,
                            const HeadGradient& gradient, cudaStream_t stream) {
  return launch_gradient(logits, inv_temperature, stats, gradient, logits.data, logits.row_stride, stream);
}

cudaError_t logits_backward(const LogitsView& logits, const float* inv_temperature, const RowStats& stats,
                            const HeadGradient& gradient, bf16* dlogits, int64_t dlogits_stride, cudaStream_t stream) {
  const bool overlaps = static_cast<void*>(dlogits) == logits.data && dlogits_stride != 2 * logits.row_stride;
  if (dlogits_stride % kVector != 0 || overlaps) return cudaErrorInvalidValue;
  return launch_gradient(logits, inv_temperature, stats, gradient, dlogits, dlogits_stride, stream);
}

}  // namespace tandem::cuda
