#include "kernels/cuda/embedding.h"

#include "kernels/cuda/device.cuh"

namespace tandem::cuda {
namespace {

constexpr int kThreads = 256;

// Thread i of the grid has vector i of the packed rows; index[row] is the row at the other side.
template <bool kScatterAdd>
__global__ void __launch_bounds__(kThreads)
    move_rows_kernel(const bf16* __restrict__ x, const int32_t* __restrict__ index, int64_t vectors, int64_t per_row,
                     bf16* __restrict__ out) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= vectors) return;
  const int64_t row = i / per_row, far = (index[row] * per_row + i % per_row) * kVector;
  if constexpr (!kScatterAdd) {
    store_vector(out + i * kVector, load_vector(x + far));
  } else {
    float a[kVector], b[kVector];
    unpack(load_vector(out + far), a);
    unpack(load_vector(x + i * kVector), b);
#pragma unroll
    for (int e = 0; e < kVector; ++e) a[e] = __fadd_rn(a[e], b[e]);
    store_vector(out + far, pack(a));
  }
}

template <bool kScatterAdd>
cudaError_t move_rows(const bf16* x, const int32_t* index, int64_t rows, int64_t width, bf16* out,
                      cudaStream_t stream) {
  if (width % kVector != 0) return cudaErrorInvalidValue;
  const int64_t per_row = width / kVector, vectors = rows * per_row;
  if (vectors == 0) return cudaSuccess;
  move_rows_kernel<kScatterAdd>
      <<<static_cast<unsigned>(ceil_div(vectors, kThreads)), kThreads, 0, stream>>>(x, index, vectors, per_row, out);
  return cudaGetLastError();
}

// A block sums 256 columns of one id: warp w takes its tokens w, w + 8, ...; the warps' sums add up in order.
constexpr int kGradientWarps = 8;
__global__ void __launch_bounds__(kGradientWarps* kWarp)
    embedding_backward_kernel(const bf16* __restrict__ dout, const IdGroupsOnDevice groups, int64_t hidden,
                              float* __restrict__ dweight) {
  __shared__ float sums[kGradientWarps][kWarp * kVector];
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int32_t begin = groups.starts_G[blockIdx.x], end = groups.starts_G[blockIdx.x + 1];
  const int64_t first = int64_t{blockIdx.y} * kWarp * kVector, column = first + lane * kVector;
  float sum[kVector] = {};
  if (column < hidden) {
#pragma unroll 4
    for (int32_t i = begin + warp; i < end; i += kGradientWarps) {
      float d[kVector];
      unpack(load_vector(dout + groups.order_T[i] * hidden + column), d);
#pragma unroll
      for (int e = 0; e < kVector; ++e) sum[e] += d[e];
    }
  }
#pragma unroll
  for (int e = 0; e < kVector; ++e) sums[warp][e * kWarp + lane] = sum[e];
  __syncthreads();
  const int mine = threadIdx.x;
  if (first + mine >= hidden) return;
  float total = 0;
  const int warps = min(kGradientWarps, end - begin);
  for (int w = 0; w < warps; ++w) total += sums[w][mine % kVector * kWarp + mine / kVector];
  dweight[groups.ids_G[blockIdx.x] * hidden + first + mine] += total;
}

__global__ void __launch_bounds__(kThreads)
    copy_blocks_kernel(bf16* const* __restrict__ layers, int64_t stride, int64_t elements,
                       const int32_t* __restrict__ from, const int32_t* __restrict__ to) {
  bf16* layer = layers[blockIdx.y];
  const bf16* source = layer + from[blockIdx.x] * stride;
  bf16* target = layer + to[blockIdx.x] * stride;
#pragma unroll 4
  for (int64_t i = threadIdx.x * kVector; i < elements; i += kThreads * kVector)
    store_vector(target + i, load_vector(source + i));
}

}  // namespace

cudaError_t gather_rows(const bf16* x, const int32_t* index, int64_t rows, int64_t width, bf16* out,
                        cudaStream_t stream) {
  return move_rows<false>(x, index, rows, width, out, stream);
}

cudaError_t scatter_add_rows(const bf16* x, const int32_t* index, int64_t rows, int64_t width, bf16* out,
                             cudaStream_t stream) {
  return move_rows<true>(x, index, rows, width, out, stream);
}

cudaError_t embedding_backward(const bf16* dout, const IdGroupsOnDevice& groups, int64_t hidden, float* dweight,
                               cudaStream_t stream) {
  if (hidden % kVector != 0) return cudaErrorInvalidValue;
  if (groups.groups == 0) return cudaSuccess;
  const dim3 grid(static_cast<unsigned>(groups.groups), static_cast<unsigned>(ceil_div(hidden, kWarp * kVector)));
  embedding_backward_kernel<<<grid, kGradientWarps * kWarp, 0, stream>>>(dout, groups, hidden, dweight);
  return cudaGetLastError();
}

cudaError_t copy_kv_blocks(bf16* const* layers, int64_t num_layers, int64_t block_stride, int64_t block_elements,
                           const int32_t* from, const int32_t* to, int64_t copies, cudaStream_t stream) {
  if (block_elements % kVector != 0 || block_stride % kVector != 0) return cudaErrorInvalidValue;
  if (copies == 0 || num_layers == 0) return cudaSuccess;
  copy_blocks_kernel<<<dim3(static_cast<unsigned>(copies), static_cast<unsigned>(num_layers)), kThreads, 0, stream>>>(
      layers, block_stride, block_elements, from, to);
  return cudaGetLastError();
}

}  // namespace tandem::cuda
