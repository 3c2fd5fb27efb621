#include "kernels/cuda/norm.h"

#include <algorithm>

#include "kernels/cuda/column_sum.cuh"
#include "kernels/cuda/device.cuh"

namespace tandem::cuda {
namespace {

// A row belongs to kWarps warps, chosen by the hidden size alone; a thread holds up to four of its vectors.
constexpr int kVectors = 4;
constexpr int64_t kMaxHidden = 8 * kWarp * kVectors * kVector;

constexpr int warps_of(int64_t hidden) {
  int warps = 1;
  while (warps * kWarp * kVectors * kVector < hidden) warps *= 2;
  return warps;
}
// One-warp rows share a block.
template <int kWarps>
constexpr int kRowsPerBlock = kWarps == 1 ? 4 : 1;

bool supported(int64_t hidden) { return hidden > 0 && hidden % kVector == 0 && hidden <= kMaxHidden; }

template <int kWarps>
struct Place {
  static constexpr int kThreads = kWarps * kWarp;
  int thread = threadIdx.x % kThreads;
  int64_t group = int64_t{blockIdx.x} * kRowsPerBlock<kWarps> + threadIdx.x / kThreads;
  // Offset of this thread's vector j in the row.
  __device__ int64_t at(int j) const { return (int64_t{j} * kThreads + thread) * kVector; }
};

// Row-wide Σ x².
template <int kWarps>
__device__ float inverse_rms(const float (&x)[kVectors][kVector], int64_t hidden, float eps, float* shared) {
  float squares = 0;
#pragma unroll
  for (int j = 0; j < kVectors; ++j)
#pragma unroll
    for (int e = 0; e < kVector; ++e) squares = __fmaf_rn(x[j][e], x[j][e], squares);
  squares = row_sum<kWarps>(squares, shared);
  return __frsqrt_rn(__fadd_rn(__fdiv_rn(squares, static_cast<float>(hidden)), eps));
}

template <int kWarps, bool kAdd>
__global__ void __launch_bounds__(kWarps* kWarp* kRowsPerBlock<kWarps>)
    norm_kernel(bf16* __restrict__ x_TE, const bf16* __restrict__ y_TE, const bf16* __restrict__ weight, float eps,
                int64_t tokens, int64_t hidden, bf16* __restrict__ out_TE) {
  __shared__ float shared[kWarps];
  const Place<kWarps> place;
  if (place.group >= tokens) return;  // a whole warp: one-warp rows meet at no barrier
  const int64_t row = place.group * hidden;
  float x[kVectors][kVector] = {};
#pragma unroll
  for (int j = 0; j < kVectors; ++j)
    if (place.at(j) < hidden) unpack(load_vector(x_TE + row + place.at(j)), x[j]);
  if constexpr (kAdd) {
#pragma unroll
    for (int j = 0; j < kVectors; ++j) {
      if (place.at(j) >= hidden) continue;
      float y[kVector];
      unpack(load_vector(y_TE + row + place.at(j)), y);
#pragma unroll
      for (int e = 0; e < kVector; ++e) x[j][e] = __fadd_rn(x[j][e], y[e]);
      const uint4 sum = pack(x[j]);
      store_vector(x_TE + row + place.at(j), sum);
      unpack(sum, x[j]);
    }
  }
  const float inv = inverse_rms<kWarps>(x, hidden, eps, shared);
#pragma unroll
  for (int j = 0; j < kVectors; ++j) {
    if (place.at(j) >= hidden) continue;
    float w[kVector];
    unpack(load_vector(weight + place.at(j)), w);
#pragma unroll
    for (int e = 0; e < kVector; ++e) w[e] = __fmul_rn(__fmul_rn(x[j][e], inv), w[e]);
    store_vector(out_TE + row + place.at(j), pack(w));
  }
}

// What a thread holds of a row on its way.
struct Loaded {
  uint4 x[kVectors], dy[kVectors], dx[kVectors];
};

// Two sums at once, with one barrier a row: `shared` changes with every row.
struct Sums {
  float squares, dot;
};
template <int kWarps>
__device__ Sums row_sums(Sums x, Sums* shared) {
  x = {lanes_sum<kWarp>(x.squares), lanes_sum<kWarp>(x.dot)};
  if constexpr (kWarps > 1) {
    if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = x;
    __syncthreads();
    x = shared[0];
#pragma unroll
    for (int i = 1; i < kWarps; ++i) x = {x.squares + shared[i].squares, x.dot + shared[i].dot};
  }
  return x;
}

// A group of warps walks through its rows, the next one loading while one is worked on, and keeps its part of dweight
// in registers; the groups of a block add theirs up in order. What was loaded stays packed, for 12 warps to fit on a
// multiprocessor.
constexpr int kWarpsResident = 12;
template <int kWarps>
__global__ void __launch_bounds__(kWarps* kWarp* kRowsPerBlock<kWarps>,
                                  kWarps == 8 ? 1 : kWarpsResident / (kWarps * kRowsPerBlock<kWarps>))
    norm_backward_kernel(const bf16* __restrict__ dout_TE, const bf16* __restrict__ x_TE,
                         const bf16* __restrict__ weight, float eps, int64_t tokens, int64_t hidden,
                         int64_t rows_per_part, bf16* __restrict__ dx_TE, float* __restrict__ parts_PE) {
  constexpr int kGroups = kRowsPerBlock<kWarps>;
  __shared__ Sums shared[2][kWarps];
  const Place<kWarps> place;
  const int64_t begin = min(tokens, place.group * rows_per_part), end = min(tokens, begin + rows_per_part);
  const auto load = [&](int64_t token, Loaded& to) {
#pragma unroll
    for (int j = 0; j < kVectors; ++j) {
      to.x[j] = to.dy[j] = {};
      if (token >= end || place.at(j) >= hidden) continue;
      const int64_t at = token * hidden + place.at(j);
      to.x[j] = load_vector(x_TE + at);
      to.dy[j] = load_vector(dout_TE + at);
      to.dx[j] = load_vector(dx_TE + at);
    }
  };
  float dweight[kVectors][kVector] = {};
  Loaded next;
  load(begin, next);
  for (int64_t token = begin; token < end; ++token) {
    const Loaded row = next;
    load(token + 1, next);
    float squares = 0, dot = 0;
#pragma unroll
    for (int j = 0; j < kVectors; ++j) {
      if (place.at(j) >= hidden) continue;
      float x[kVector], dy[kVector], w[kVector];
      unpack(row.x[j], x);
      unpack(row.dy[j], dy);
      unpack(load_vector(weight + place.at(j)), w);
#pragma unroll
      for (int e = 0; e < kVector; ++e) {
        squares += x[e] * x[e];
        dot += dy[e] * w[e] * x[e];
      }
    }
    const Sums whole = row_sums<kWarps>({squares, dot}, shared[token % 2]);
    const float scale = 1.0f / static_cast<float>(hidden), inv = __frsqrt_rn(whole.squares * scale + eps);
    const float pull = -inv * inv * whole.dot * scale;
#pragma unroll
    for (int j = 0; j < kVectors; ++j) {
      if (place.at(j) >= hidden) continue;
      float x[kVector], dy[kVector], w[kVector], dx[kVector];
      unpack(row.x[j], x);
      unpack(row.dy[j], dy);
      unpack(load_vector(weight + place.at(j)), w);
      unpack(row.dx[j], dx);
#pragma unroll
      for (int e = 0; e < kVector; ++e) {
        dweight[j][e] += dy[e] * x[e] * inv;
        dx[e] += inv * (dy[e] * w[e] + x[e] * pull);
      }
      store_vector(dx_TE + token * hidden + place.at(j), pack(dx));
    }
  }
  __shared__ float sums[kGroups > 1 ? kWarp * kVectors * kVector : 1];
  const int group = threadIdx.x / Place<kWarps>::kThreads;
  for (int turn = 0; turn < kGroups; ++turn) {
    if (group == turn) {
#pragma unroll
      for (int j = 0; j < kVectors; ++j) {
        if (place.at(j) >= hidden) continue;
        float* mine = sums + place.at(j);
        if (kGroups > 1 && turn > 0) {
#pragma unroll
          for (int e = 0; e < kVector; ++e) dweight[j][e] += mine[e];
        }
        float* out = turn + 1 < kGroups ? mine : parts_PE + blockIdx.x * hidden + place.at(j);
#pragma unroll
        for (int e = 0; e < kVector; ++e) out[e] = dweight[j][e];
      }
    }
    if (kGroups > 1) __syncthreads();
  }
}

__global__ void add_kernel(bf16* __restrict__ x, const bf16* __restrict__ y, int64_t vectors) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= vectors) return;
  float a[kVector], b[kVector];
  unpack(load_vector(x + i * kVector), a);
  unpack(load_vector(y + i * kVector), b);
#pragma unroll
  for (int e = 0; e < kVector; ++e) a[e] = __fadd_rn(a[e], b[e]);
  store_vector(x + i * kVector, pack(a));
}

template <class Fn>
cudaError_t with_warps(int64_t hidden, Fn fn) {
  switch (warps_of(hidden)) {
    case 1:
      return fn.template operator()<1>();
    case 2:
      return fn.template operator()<2>();
    case 4:
      return fn.template operator()<4>();
    default:
      return fn.template operator()<8>();
  }
}

template <bool kAdd>
cudaError_t launch_norm(bf16* x, const bf16* y, const bf16* weight, float eps, int64_t tokens, int64_t hidden,
                        bf16* out, cudaStream_t stream) {
  if (!supported(hidden)) return cudaErrorInvalidValue;
  if (tokens == 0) return cudaSuccess;
  return with_warps(hidden, [&]<int kWarps>() {
    constexpr int kRows = kRowsPerBlock<kWarps>;
    norm_kernel<kWarps, kAdd><<<static_cast<unsigned>(ceil_div(tokens, kRows)), kWarps * kWarp * kRows, 0, stream>>>(
        x, y, weight, eps, tokens, hidden, out);
    return cudaGetLastError();
  });
}

// dweight is summed in parts, one a block: enough to fill the chip, at least 8 rows a group of warps. A function of the
// shape alone.
struct Partition {
  int64_t rows_per_group, blocks;
};
Partition partition(int64_t tokens, int64_t hidden) {
  constexpr int64_t kMultiprocessors = 132;
  const int warps = warps_of(hidden), groups_per_block = warps == 1 ? 4 : 1;
  const int64_t rows = std::max<int64_t>(8, ceil_div(tokens, kMultiprocessors * kWarpsResident / warps));
  return {rows, ceil_div(tokens, rows * groups_per_block)};
}

}  // namespace

cudaError_t rms_norm(const bf16* x, const bf16* weight, float eps, int64_t tokens, int64_t hidden, bf16* out,
                     cudaStream_t stream) {
  return launch_norm<false>(const_cast<bf16*>(x), nullptr, weight, eps, tokens, hidden, out, stream);
}

cudaError_t add_rms_norm(bf16* x, const bf16* y, const bf16* weight, float eps, int64_t tokens, int64_t hidden,
                         bf16* out, cudaStream_t stream) {
  return launch_norm<true>(x, y, weight, eps, tokens, hidden, out, stream);
}

cudaError_t add(bf16* x, const bf16* y, int64_t size, cudaStream_t stream) {
  if (size % kVector != 0) return cudaErrorInvalidValue;
  if (size == 0) return cudaSuccess;
  constexpr int kThreads = 256;
  const int64_t vectors = size / kVector;
  add_kernel<<<static_cast<unsigned>(ceil_div(vectors, kThreads)), kThreads, 0, stream>>>(x, y, vectors);
  return cudaGetLastError();
}

size_t rms_norm_backward_workspace_bytes(int64_t tokens, int64_t hidden) {
  return static_cast<size_t>(partition(tokens, hidden).blocks * hidden) * sizeof(float);
}

cudaError_t rms_norm_backward(const bf16* dout, const bf16* x, const bf16* weight, float eps, int64_t tokens,
                              int64_t hidden, bf16* dx, float* dweight, void* workspace, cudaStream_t stream) {
  if (!supported(hidden)) return cudaErrorInvalidValue;
  if (tokens == 0) return cudaSuccess;
  const Partition parts = partition(tokens, hidden);
  auto* table = static_cast<float*>(workspace);
  const cudaError_t launched = with_warps(hidden, [&]<int kWarps>() {
    norm_backward_kernel<kWarps>
        <<<static_cast<unsigned>(parts.blocks), kWarps * kWarp * kRowsPerBlock<kWarps>, 0, stream>>>(
            dout, x, weight, eps, tokens, hidden, parts.rows_per_group, dx, table);
    return cudaGetLastError();
  });
  if (launched != cudaSuccess || dweight == nullptr) return launched;
  return add_column_sums(table, parts.blocks, hidden, hidden, dweight, stream);
}

}  // namespace tandem::cuda
