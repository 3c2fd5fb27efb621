// Small device helpers: 16-byte vectors of bf16, reductions by fixed trees, launch arithmetic.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

namespace tandem::cuda {

constexpr int kWarp = 32;
constexpr unsigned kAllLanes = 0xffffffffu;
constexpr int kVector = 8;  // bf16 elements in 16 bytes

__host__ __device__ constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

__device__ inline uint4 load_vector(const __nv_bfloat16* p) { return *reinterpret_cast<const uint4*>(p); }
__device__ inline void store_vector(__nv_bfloat16* p, const uint4& v) { *reinterpret_cast<uint4*>(p) = v; }

__device__ inline void unpack(const uint4& v, float (&x)[kVector]) {
  const uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    x[2 * i] = __uint_as_float(words[i] << 16);
    x[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
  }
}

__device__ inline uint32_t pack2(float a, float b) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(a, b);
  return *reinterpret_cast<const uint32_t*>(&pair);
}
__device__ inline uint4 pack(const float (&x)[kVector]) {
  return {pack2(x[0], x[1]), pack2(x[2], x[3]), pack2(x[4], x[5]), pack2(x[6], x[7])};
}

// Butterflies: every lane of the group of `kLanes` neighbours gets the same bits.
template <int kLanes, class T>
__device__ inline T lanes_sum(T x) {
#pragma unroll
  for (int offset = kLanes / 2; offset > 0; offset /= 2) x += __shfl_xor_sync(kAllLanes, x, offset);
  return x;
}
__device__ inline float warp_max(float x) {
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2) x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, offset));
  return x;
}

// Sum over a row's kWarps warps, the same bits in each of its threads. `shared` has a float for each warp.
template <int kWarps>
__device__ inline float row_sum(float x, float* shared) {
  x = lanes_sum<kWarp>(x);
  if constexpr (kWarps > 1) {
    __syncthreads();  // the last use of `shared` is over
    if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = x;
    __syncthreads();
    x = shared[0];
#pragma unroll
    for (int i = 1; i < kWarps; ++i) x += shared[i];
  }
  return x;
}

}  // namespace tandem::cuda
