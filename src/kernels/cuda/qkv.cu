#include "kernels/cuda/qkv.h"

#include <algorithm>

#include "kernels/cuda/column_sum.cuh"
#include "kernels/cuda/device.cuh"

namespace tandem::cuda {
namespace {

// A head belongs to D/8 neighbouring lanes (a "team"). A lane holds four elements of each half, so that it has what
// rope pairs: 8-byte accesses, whole sectors across the team.
constexpr int kThreads = 256;
template <int kDim>
constexpr int kTeam = kDim / kVector;
template <int kDim>
constexpr int kTeams = kThreads / kTeam<kDim>;
constexpr int kHeadsPerTeam = 4;

struct Packed {
  uint2 low, high;
};
template <int kDim>
__device__ Packed load_head(const bf16* head, int lane) {
  return {*reinterpret_cast<const uint2*>(head + lane * 4),
          *reinterpret_cast<const uint2*>(head + kDim / 2 + lane * 4)};
}
template <int kDim>
__device__ void store_head(bf16* head, int lane, const Packed& x) {
  *reinterpret_cast<uint2*>(head + lane * 4) = x.low;
  *reinterpret_cast<uint2*>(head + kDim / 2 + lane * 4) = x.high;
}
__device__ void unpack_head(const Packed& x, float (&out)[kVector]) {
  unpack(uint4{x.low.x, x.low.y, x.high.x, x.high.y}, out);
}
__device__ Packed pack_head(const float (&x)[kVector]) {
  const uint4 all = pack(x);
  return {{all.x, all.y}, {all.z, all.w}};
}

template <int kDim>
struct Rotation {
  float4 cos, sin;

  __device__ Rotation(const QkvTransform& transform, int32_t position, int lane) {
    const int64_t at = int64_t{position} * (kDim / 2) + lane * 4;
    cos = *reinterpret_cast<const float4*>(transform.cos_PD2 + at);
    sin = *reinterpret_cast<const float4*>(transform.sin_PD2 + at);
  }

  // The transpose for sign −1.
  __device__ void apply(float (&x)[kVector], float sign) const {
    const float c[4] = {cos.x, cos.y, cos.z, cos.w}, s[4] = {sin.x, sin.y, sin.z, sin.w};
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float a = x[e], b = x[e + 4], turn = sign * s[e];
      x[e] = __fmaf_rn(a, c[e], -__fmul_rn(b, turn));
      x[e + 4] = __fmaf_rn(b, c[e], __fmul_rn(a, turn));
    }
  }
};

template <int kDim>
__device__ float inverse_rms(const float (&x)[kVector], float eps) {
  float squares = 0;
#pragma unroll
  for (int e = 0; e < kVector; ++e) squares = __fmaf_rn(x[e], x[e], squares);
  squares = lanes_sum<kTeam<kDim>>(squares);
  return __frsqrt_rn(__fmaf_rn(squares, 1.0f / kDim, eps));
}

__device__ bf16* page_entry(const KvPages& pages, int32_t slot, int64_t plane, int64_t dim) {
  const int64_t block = slot / kKeysPerPage, offset = slot % kKeysPerPage;
  return pages.base + block * pages.block_stride + (plane * kKeysPerPage + offset) * dim;
}

template <int kDim>
__global__ void __launch_bounds__(kThreads)
    split_kernel(const bf16* __restrict__ qkv_TN, const QkvShape shape, const QkvTransform transform,
                 const int32_t* __restrict__ positions, const QkvOutputs out) {
  constexpr int kLanes = kTeam<kDim>;
  const int lane = threadIdx.x % kLanes;
  const int heads = static_cast<int>(shape.heads), kv_heads = static_cast<int>(shape.kv_heads);
  const int all_heads = heads + 2 * kv_heads, groups = (all_heads + kHeadsPerTeam - 1) / kHeadsPerTeam;
  const int64_t team = int64_t{blockIdx.x} * kTeams<kDim> + threadIdx.x / kLanes;
  const bool present = team < shape.tokens * groups;  // the others go along: shuffles want whole warps
  const int64_t token = present ? team / groups : 0;
  const int first = present ? static_cast<int>(team % groups) * kHeadsPerTeam : all_heads;
  Packed packed[kHeadsPerTeam];
#pragma unroll
  for (int i = 0; i < kHeadsPerTeam; ++i) {
    packed[i] = {};
    if (first + i < all_heads) packed[i] = load_head<kDim>(qkv_TN + (token * all_heads + first + i) * kDim, lane);
  }
  const Rotation<kDim> rotation(transform, positions[token], lane);
  const int32_t slot = out.pages.base != nullptr ? out.slots_T[token] : -1;
#pragma unroll
  for (int i = 0; i < kHeadsPerTeam; ++i) {
    const int head = first + i;
    float x[kVector];
    unpack_head(packed[i], x);
    const bf16* norm = head < heads ? transform.q_norm_D : transform.k_norm_D;
    const float inv = inverse_rms<kDim>(x, transform.eps);
    if (norm != nullptr) {
      float w[kVector];
      unpack_head(load_head<kDim>(norm, lane), w);
#pragma unroll
      for (int e = 0; e < kVector; ++e) x[e] = __fmul_rn(__fmul_rn(x[e], inv), w[e]);
    }
    rotation.apply(x, 1.0f);
    if (head >= all_heads) continue;
    const bool is_value = head >= heads + kv_heads;
    const Packed result = is_value ? packed[i] : pack_head(x);
    if (head < heads) {
      if (out.q_THD != nullptr) store_head<kDim>(out.q_THD + (token * heads + head) * kDim, lane, result);
      continue;
    }
    const int kv_head = head - heads - (is_value ? kv_heads : 0);
    bf16* dense = is_value ? out.v_TKD : out.k_TKD;
    if (dense != nullptr) store_head<kDim>(dense + (token * kv_heads + kv_head) * kDim, lane, result);
    if (slot >= 0) store_head<kDim>(page_entry(out.pages, slot, head - heads, kDim), lane, result);
  }
}

__global__ void write_kv_kernel(const bf16* __restrict__ k_TKD, const bf16* __restrict__ v_TKD, int64_t kv_heads,
                                int64_t dim, const int32_t* __restrict__ tokens, const int32_t* __restrict__ slots,
                                const KvPages pages) {
  const int32_t slot = slots[blockIdx.x];
  if (slot < 0) return;
  const int64_t width = kv_heads * dim, row = tokens[blockIdx.x] * width;
  for (int64_t i = threadIdx.x * kVector; i < width; i += int64_t{blockDim.x} * kVector) {
    store_vector(page_entry(pages, slot, i / dim, dim) + i % dim, load_vector(k_TKD + row + i));
    store_vector(page_entry(pages, slot, kv_heads + i / dim, dim) + i % dim, load_vector(v_TKD + row + i));
  }
}

struct HeadGradients {
  const bf16 *dq_THD, *dk_TKD, *dv_TKD;
};

// A block walks through its tokens; with QK-norm it keeps its part of the norms' gradients in registers. A team has
// two heads in flight.
constexpr int kHeadsInFlight = 2;
template <int kDim, bool kNorm>
__global__ void __launch_bounds__(kThreads)
    split_backward_kernel(const HeadGradients grads, const bf16* __restrict__ qkv_TN, const QkvShape shape,
                          const QkvTransform transform, const int32_t* __restrict__ positions, int64_t tokens_per_part,
                          bf16* __restrict__ dqkv_TN, float* __restrict__ parts_P2D) {
  constexpr int kLanes = kTeam<kDim>;
  const int lane = threadIdx.x % kLanes, team = threadIdx.x / kLanes;
  const int heads = static_cast<int>(shape.heads), kv_heads = static_cast<int>(shape.kv_heads);
  const int all_heads = heads + 2 * kv_heads;
  const int64_t begin = blockIdx.x * tokens_per_part, end = min(shape.tokens, begin + tokens_per_part);
  float weights[2][kVector] = {}, sums[2][kVector] = {};
  if constexpr (kNorm) {
    unpack_head(load_head<kDim>(transform.q_norm_D, lane), weights[0]);
    unpack_head(load_head<kDim>(transform.k_norm_D, lane), weights[1]);
  }
  for (int64_t token = begin; token < end; ++token) {
    const Rotation<kDim> rotation(transform, positions[token], lane);
    for (int base = 0; base < all_heads; base += kHeadsInFlight * kTeams<kDim>) {
      Packed packed[kHeadsInFlight] = {}, x_packed[kHeadsInFlight] = {};
#pragma unroll
      for (int i = 0; i < kHeadsInFlight; ++i) {
        const int head = base + i * kTeams<kDim> + team;
        if (head >= all_heads) continue;
        const bool is_value = head >= heads + kv_heads;
        const bf16* from = head < heads ? grads.dq_THD + (token * heads + head) * kDim
                           : is_value   ? grads.dv_TKD + (token * kv_heads + head - heads - kv_heads) * kDim
                                        : grads.dk_TKD + (token * kv_heads + head - heads) * kDim;
        packed[i] = load_head<kDim>(from, lane);
        if (kNorm && !is_value) x_packed[i] = load_head<kDim>(qkv_TN + (token * all_heads + head) * kDim, lane);
      }
#pragma unroll
      for (int i = 0; i < kHeadsInFlight; ++i) {
        const int head = base + i * kTeams<kDim> + team;
        const bool is_value = head >= heads + kv_heads, is_query = head < heads;
        float g[kVector];
        unpack_head(packed[i], g);
        rotation.apply(g, -1.0f);
        if constexpr (kNorm) {
          float x[kVector];
          unpack_head(x_packed[i], x);
          const float inv = inverse_rms<kDim>(x, transform.eps);
          float dot = 0;
#pragma unroll
          for (int e = 0; e < kVector; ++e) {
            const float slope = g[e] * x[e] * inv;
            if (is_query) sums[0][e] += slope;
            if (!is_query && !is_value) sums[1][e] += slope;
            g[e] *= is_query ? weights[0][e] : weights[1][e];
            dot += g[e] * x[e];
          }
          const float pull = -inv * inv * lanes_sum<kLanes>(dot) * (1.0f / kDim);
#pragma unroll
          for (int e = 0; e < kVector; ++e) g[e] = inv * (g[e] + x[e] * pull);
        }
        if (head < all_heads)
          store_head<kDim>(dqkv_TN + (token * all_heads + head) * kDim, lane, is_value ? packed[i] : pack_head(g));
      }
    }
  }
  if constexpr (kNorm) {
    __shared__ float table[kTeams<kDim>][2][kDim];
#pragma unroll
    for (int e = 0; e < kVector; ++e) {
      const int at = e / 4 * (kDim / 2) + lane * 4 + e % 4;
      table[team][0][at] = sums[0][e];
      table[team][1][at] = sums[1][e];
    }
    __syncthreads();
    for (int i = threadIdx.x; i < 2 * kDim; i += kThreads) {
      float sum = 0;
      for (int t = 0; t < kTeams<kDim>; ++t) sum += table[t][i / kDim][i % kDim];
      parts_P2D[int64_t{blockIdx.x} * 2 * kDim + i] = sum;
    }
  }
}

int64_t tokens_per_part(int64_t tokens) {
  constexpr int64_t kParts = 1056;
  return std::max<int64_t>(4, ceil_div(tokens, kParts));
}

template <class Fn>
cudaError_t with_dim(int64_t head_dim, Fn fn) {
  switch (head_dim) {
    case 32:
      return fn.template operator()<32>();
    case 64:
      return fn.template operator()<64>();
    case 128:
      return fn.template operator()<128>();
    case 256:
      return fn.template operator()<256>();
    default:
      return cudaErrorInvalidValue;
  }
}

bool consistent(const QkvTransform& t) { return (t.q_norm_D == nullptr) == (t.k_norm_D == nullptr); }

}  // namespace

cudaError_t split_qkv(const bf16* qkv, const QkvShape& shape, const QkvTransform& transform, const int32_t* positions,
                      const QkvOutputs& outputs, cudaStream_t stream) {
  if (!consistent(transform)) return cudaErrorInvalidValue;
  return with_dim(shape.head_dim, [&]<int kDim>() {
    if (shape.tokens == 0) return cudaSuccess;
    const int64_t groups = ceil_div(shape.heads + 2 * shape.kv_heads, kHeadsPerTeam);
    split_kernel<kDim><<<static_cast<unsigned>(ceil_div(shape.tokens * groups, kTeams<kDim>)), kThreads, 0, stream>>>(
        qkv, shape, transform, positions, outputs);
    return cudaGetLastError();
  });
}

cudaError_t write_kv(const bf16* k, const bf16* v, int64_t kv_heads, int64_t head_dim, const int32_t* tokens,
                     const int32_t* slots, int64_t writes, const KvPages& pages, cudaStream_t stream) {
  if (head_dim % kVector != 0) return cudaErrorInvalidValue;
  if (writes == 0) return cudaSuccess;
  write_kv_kernel<<<static_cast<unsigned>(writes), 128, 0, stream>>>(k, v, kv_heads, head_dim, tokens, slots, pages);
  return cudaGetLastError();
}

size_t split_qkv_backward_workspace_bytes(const QkvShape& shape) {
  return static_cast<size_t>(ceil_div(shape.tokens, tokens_per_part(shape.tokens)) * 2 * shape.head_dim) *
         sizeof(float);
}

cudaError_t split_qkv_backward(const bf16* dq, const bf16* dk, const bf16* dv, const bf16* qkv, const QkvShape& shape,
                               const QkvTransform& transform, const int32_t* positions, bf16* dqkv, float* dq_norm,
                               float* dk_norm, void* workspace, cudaStream_t stream) {
  if (!consistent(transform)) return cudaErrorInvalidValue;
  return with_dim(shape.head_dim, [&]<int kDim>() {
    if (shape.tokens == 0) return cudaSuccess;
    const int64_t per_part = tokens_per_part(shape.tokens), parts = ceil_div(shape.tokens, per_part);
    const auto blocks = static_cast<unsigned>(parts);
    const HeadGradients grads{dq, dk, dv};
    auto* table = static_cast<float*>(workspace);
    if (transform.q_norm_D == nullptr) {
      split_backward_kernel<kDim, false>
          <<<blocks, kThreads, 0, stream>>>(grads, qkv, shape, transform, positions, per_part, dqkv, nullptr);
      return cudaGetLastError();
    }
    split_backward_kernel<kDim, true>
        <<<blocks, kThreads, 0, stream>>>(grads, qkv, shape, transform, positions, per_part, dqkv, table);
    cudaError_t status = cudaGetLastError();
    if (dq_norm == nullptr) return status;
    if (status == cudaSuccess) status = add_column_sums(table, parts, 2 * kDim, kDim, dq_norm, stream);
    if (status == cudaSuccess) status = add_column_sums(table + kDim, parts, 2 * kDim, kDim, dk_norm, stream);
    return status;
  });
}

}  // namespace tandem::cuda
