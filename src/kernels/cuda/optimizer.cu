#include "kernels/cuda/optimizer.h"

#include <cmath>

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/philox.cuh"

namespace tandem::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kLanes = 4;  // floats in 16 bytes

struct Chunk {
  OptimizerTensor tensor;
  int64_t begin, end;
};

// The last tensor that starts at or before this block's chunk (empty ones start where the next does).
template <int64_t kChunk>
__device__ Chunk find_chunk(const OptimizerTable& table) {
  const int64_t chunk = blockIdx.x;
  int64_t low = 0, high = table.num_tensors;
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    (table.chunk_starts[middle] <= chunk ? low : high) = middle;
  }
  Chunk found{table.tensors[low], (chunk - table.chunk_starts[low]) * kChunk, 0};
  found.end = min(found.tensor.size, found.begin + kChunk);
  return found;
}

struct Rates {
  float b1, c1, b2, c2, keep, rate, root, eps;
};

struct Element {
  float w, m, v;
};

__device__ Element update(const Rates& r, float clip, float gradient, Element x) {
  const float g = __fmul_rn(gradient, clip);
  x.m = __fmaf_rn(r.b1, x.m, __fmul_rn(r.c1, g));
  x.v = __fmaf_rn(r.b2, x.v, __fmul_rn(__fmul_rn(r.c2, g), g));
  const float step = __fdiv_rn(x.m, __fmaf_rn(__fsqrt_rn(x.v), r.root, r.eps));
  x.w = __fmaf_rn(r.rate, step, __fmul_rn(x.w, r.keep));
  return x;
}

__device__ void update_one(const OptimizerTensor& t, const Rates& rates, float clip, int64_t i) {
  const Element x = update(rates, clip, t.gradient[i], {t.weight[i], t.moment1[i], t.moment2[i]});
  t.weight[i] = x.w, t.moment1[i] = x.m, t.moment2[i] = x.v;
  if (t.compute_weight != nullptr) t.compute_weight[i] = __float2bfloat16_rn(x.w);
}

__device__ float4 load4(const float* p) { return *reinterpret_cast<const float4*>(p); }
__device__ void store4(float* p, const float4& v) { *reinterpret_cast<float4*>(p) = v; }

__global__ void __launch_bounds__(kThreads)
    adamw_kernel(const OptimizerTable table, const Rates rates, const float* __restrict__ gradient_scale) {
  const Chunk chunk = find_chunk<kOptimizerChunk>(table);
  const OptimizerTensor& t = chunk.tensor;
  const float clip = gradient_scale != nullptr ? *gradient_scale : 1.0f;
  const int64_t whole = chunk.begin + (chunk.end - chunk.begin) / kLanes * kLanes;
#pragma unroll 2
  for (int64_t i = chunk.begin + threadIdx.x * kLanes; i < whole; i += kThreads * kLanes) {
    const float4 g = load4(t.gradient + i), w = load4(t.weight + i), m = load4(t.moment1 + i), v = load4(t.moment2 + i);
    const Element a = update(rates, clip, g.x, {w.x, m.x, v.x}), b = update(rates, clip, g.y, {w.y, m.y, v.y}),
                  c = update(rates, clip, g.z, {w.z, m.z, v.z}), d = update(rates, clip, g.w, {w.w, m.w, v.w});
    store4(t.weight + i, {a.w, b.w, c.w, d.w});
    store4(t.moment1 + i, {a.m, b.m, c.m, d.m});
    store4(t.moment2 + i, {a.v, b.v, c.v, d.v});
    if (t.compute_weight != nullptr)
      *reinterpret_cast<uint2*>(t.compute_weight + i) = {pack2(a.w, b.w), pack2(c.w, d.w)};
  }
  if (whole + threadIdx.x < chunk.end) update_one(t, rates, clip, whole + threadIdx.x);
}

// The same bits in every thread.
__device__ double block_sum(double x) {
  __shared__ double sums[kThreads / kWarp];
  x = lanes_sum<kWarp>(x);
  if (threadIdx.x % kWarp == 0) sums[threadIdx.x / kWarp] = x;
  __syncthreads();
  x = sums[0];
#pragma unroll
  for (int i = 1; i < kThreads / kWarp; ++i) x += sums[i];
  return x;
}

__device__ double squared(float x, double sum) { return fma(static_cast<double>(x), static_cast<double>(x), sum); }

__global__ void __launch_bounds__(kThreads) squares_kernel(const OptimizerTable table, double* __restrict__ sums) {
  const Chunk chunk = find_chunk<kSquareChunk>(table);
  const float* g = chunk.tensor.gradient;
  const int64_t whole = chunk.begin + (chunk.end - chunk.begin) / kLanes * kLanes;
  double sum = 0;
#pragma unroll 4
  for (int64_t i = chunk.begin + threadIdx.x * kLanes; i < whole; i += kThreads * kLanes) {
    const float4 x = load4(g + i);
    sum = squared(x.w, squared(x.z, squared(x.y, squared(x.x, sum))));
  }
  if (whole + threadIdx.x < chunk.end) sum = squared(g[whole + threadIdx.x], sum);
  sum = block_sum(sum);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

// `vectors` whole float4s, then what is left.
__global__ void __launch_bounds__(kThreads)
    accumulate_kernel(float* __restrict__ to, const float* __restrict__ from, int64_t vectors, int64_t size) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < vectors) {
    const float4 a = load4(to + kLanes * i), b = load4(from + kLanes * i);
    store4(to + kLanes * i, {__fadd_rn(a.x, b.x), __fadd_rn(a.y, b.y), __fadd_rn(a.z, b.z), __fadd_rn(a.w, b.w)});
  } else if (const int64_t rest = kLanes * vectors + (i - vectors); rest < size) {
    to[rest] = __fadd_rn(to[rest], from[rest]);
  }
}

// As kernels/spread_rounded.cc: the same bits.
__global__ void __launch_bounds__(kThreads) spread_kernel(float* __restrict__ values, int64_t count, uint64_t key) {
  const int64_t block = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (block * 8 >= count) return;
  uint32_t random[4] = {static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), 0, 0};
  philox4x32(random, key);
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int64_t at = block * 8 + i;
    if (at >= count) return;
    const uint32_t bits = __float_as_uint(values[at]), draw = random[i / 2] >> (i % 2 * 16) & 0xffffu;
    if ((bits & 0xffffu) == 0 && (bits & 0x7fffffffu) != 0)
      values[at] = __uint_as_float(bits + max(draw, 1u) - 0x8000u);
  }
}

__global__ void clip_scale_kernel(const double* __restrict__ squares, double max_norm, float* __restrict__ scale) {
  const double ratio = max_norm / (sqrt(*squares) + 1e-6);
  *scale = max_norm <= 0 || ratio > 1 ? 1.0f : static_cast<float>(ratio);  // of a NaN, a NaN
}

}  // namespace

cudaError_t adamw(const OptimizerTable& table, const AdamW& a, const float* gradient_scale, cudaStream_t stream) {
  if (table.num_chunks == 0) return cudaSuccess;
  const auto step = static_cast<double>(a.step);
  const double correction1 = 1.0 - std::pow(a.beta1, step), correction2 = 1.0 - std::pow(a.beta2, step);
  const auto f = [](double x) { return static_cast<float>(x); };
  const Rates rates{f(a.beta1),
                    f(1.0 - a.beta1),
                    f(a.beta2),
                    f(1.0 - a.beta2),
                    f(1.0 - a.lr * a.weight_decay),
                    f(-a.lr / correction1),
                    f(1.0 / std::sqrt(correction2)),
                    f(a.eps)};
  adamw_kernel<<<static_cast<unsigned>(table.num_chunks), kThreads, 0, stream>>>(table, rates, gradient_scale);
  return cudaGetLastError();
}

cudaError_t spread_rounded(float* values, int64_t count, uint64_t key, cudaStream_t stream) {
  if (count == 0) return cudaSuccess;
  const int64_t blocks = (count + 7) / 8;
  spread_kernel<<<static_cast<unsigned>((blocks + kThreads - 1) / kThreads), kThreads, 0, stream>>>(values, count, key);
  return cudaGetLastError();
}

cudaError_t block_squares(const OptimizerTable& table, double* sums, cudaStream_t stream) {
  if (table.num_chunks == 0) return cudaSuccess;
  squares_kernel<<<static_cast<unsigned>(table.num_chunks), kThreads, 0, stream>>>(table, sums);
  return cudaGetLastError();
}

cudaError_t accumulate(float* to, const float* from, int64_t size, cudaStream_t stream) {
  if (size == 0) return cudaSuccess;
  const bool aligned = (reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from)) % 16 == 0;
  const int64_t vectors = aligned ? size / kLanes : 0, threads = vectors + (size - kLanes * vectors);
  accumulate_kernel<<<static_cast<unsigned>(ceil_div(threads, kThreads)), kThreads, 0, stream>>>(to, from, vectors,
                                                                                                 size);
  return cudaGetLastError();
}

cudaError_t clip_scale(const double* squares, double max_norm, float* scale, cudaStream_t stream) {
  clip_scale_kernel<<<1, 1, 0, stream>>>(squares, max_norm, scale);
  return cudaGetLastError();
}

}  // namespace tandem::cuda
