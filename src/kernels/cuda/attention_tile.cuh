// Tiles of rows in shared memory: blocks of 64 columns, a row of a block being 128 bytes, its 16-byte piece c at
// c ^ (row & 7): what wgmma calls the 128-byte swizzle, and free of bank conflicts for ldmatrix.
#pragma once

#include <cuda_bf16.h>

#include "kernels/cuda/attention_ptx.cuh"

namespace tandem::cuda {

using bf16 = __nv_bfloat16;

// One of 128 loading threads: it copies piece `piece` of the rows row, row + kRowsPerPass, …
template <int D>
struct TileThread {
  static constexpr int kPieces = D / 8, kRowsPerPass = 128 / kPieces, kPassBytes = kRowsPerPass * 128;
  int row, piece;
  __device__ __forceinline__ explicit TileThread(int thread) : row(thread / kPieces), piece(thread % kPieces) {}
  // Where the thread's first piece goes, in a tile whose blocks of 64 columns are `block_bytes` apart.
  __device__ __forceinline__ uint32_t offset(int block_bytes) const {
    return (piece >> 3) * block_bytes + row * 128 + (((piece & 7) ^ (row & 7)) << 4);
  }
};

// 128 threads copy kRows rows; those from `count` on become zeros. `source` is the first row, its columns `column` on.
template <int D, int kRows>
__device__ __forceinline__ void load_tile(const TileThread<D>& thread, const bf16* source, int64_t stride, int count,
                                          uint32_t target) {
  using Thread = TileThread<D>;
  target += thread.offset(kRows * 128);
  source += thread.piece * 8;
#pragma unroll 4
  for (int i = 0; i < kRows / Thread::kRowsPerPass; ++i) {
    const int r = i * Thread::kRowsPerPass + thread.row;
    const bool keep = r < count;
    copy_async_or_zero(target + i * Thread::kPassBytes, source + (keep ? r : 0) * stride, keep);
  }
}

// The mma.sync products of a warp's 16 rows. `a` and `b` are tiles of kRowsA and 64 rows; lane 8q + r gives ldmatrix
// the address of row r of matrix q. s (16 × 64) = a (16 rows from `row` on, D columns) · b (64 × D)ᵀ
template <int D, int kRowsA>
__device__ __forceinline__ void mma_abt(float (&s)[32], uint32_t a, int row, uint32_t b) {
  const int r = threadIdx.x & 7, q = threadIdx.x >> 3 & 3;
#pragma unroll
  for (int j = 0; j < 32; ++j) s[j] = 0.0f;
#pragma unroll
  for (int d = 0; d < D / 16; ++d) {
    uint32_t fa[4];
    load_matrices(
        fa, a + (d >> 2) * (kRowsA * 128) + (row + r + (q & 1) * 8) * 128 + (((2 * (d & 3) + (q >> 1)) ^ r) << 4));
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      uint32_t fb[4];
      load_matrices(
          fb, b + (d >> 2) * (64 * 128) + (16 * j + r + (q >> 1) * 8) * 128 + (((2 * (d & 3) + (q & 1)) ^ r) << 4));
      mma(s + 8 * j, fa, fb[0], fb[1]);
      mma(s + 8 * j + 4, fa, fb[2], fb[3]);
    }
  }
}
// o (16 × D) += a (16 × 64, registers) · b (64 × D)
template <int D>
__device__ __forceinline__ void mma_ab(float (&o)[D / 2], const uint32_t (&a)[16], uint32_t b) {
  const int r = threadIdx.x & 7, q = threadIdx.x >> 3 & 3;
#pragma unroll
  for (int j = 0; j < 4; ++j)
#pragma unroll
    for (int d = 0; d < D / 16; ++d) {
      uint32_t fb[4];
      load_matrices_transposed(
          fb, b + (d >> 2) * (64 * 128) + (16 * j + r + (q & 1) * 8) * 128 + (((2 * (d & 3) + (q >> 1)) ^ r) << 4));
      mma(o + 8 * d, a + 4 * j, fb[0], fb[1]);
      mma(o + 8 * d + 4, a + 4 * j, fb[2], fb[3]);
    }
}

}  // namespace tandem::cuda
