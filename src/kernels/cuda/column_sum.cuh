// Second pass of the weight gradients: out += the sum of the rows of a table of partial sums.
#pragma once

#include <cuda_runtime.h>

#include "kernels/cuda/device.cuh"

namespace tandem::cuda {

// Thread (x, y) sums rows y, y + 32, ... of a column; the 32 sums add up in order.
static __global__ void column_sum_kernel(const float* __restrict__ table, int64_t rows, int64_t stride, int64_t width,
                                         float* __restrict__ out) {
  __shared__ float sums[kWarp][kWarp + 1];
  const int64_t column = int64_t{blockIdx.x} * kWarp + threadIdx.x;
  float sum = 0;
  if (column < width) {
#pragma unroll 4
    for (int64_t row = threadIdx.y; row < rows; row += kWarp) sum += table[row * stride + column];
  }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= width) return;
  for (int i = 1; i < kWarp; ++i) sum += sums[i][threadIdx.x];
  out[column] += sum;
}

inline cudaError_t add_column_sums(const float* table, int64_t rows, int64_t stride, int64_t width, float* out,
                                   cudaStream_t stream) {
  column_sum_kernel<<<static_cast<unsigned>(ceil_div(width, kWarp)), dim3(kWarp, kWarp), 0, stream>>>(
      table, rows, stride, width, out);
  return cudaGetLastError();
}

}  // namespace tandem::cuda
