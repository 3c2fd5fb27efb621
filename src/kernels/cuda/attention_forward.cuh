// What the two prefill kernels share: their arguments, and how keys and values come into shared memory.
#pragma once

#include "kernels/cuda/attention.h"
#include "kernels/cuda/attention_ptx.cuh"
#include "kernels/cuda/attention_tile.cuh"

namespace tandem::cuda {

struct ForwardArgs {
  AttentionShape shape;
  const bf16* q;
  int64_t q_stride;
  PagedKv paged;
  const bf16 *k, *v;  // packed
  int64_t kv_stride;
  const PackedSequence* sequences;
  const QueryTile* tiles;
  int32_t num_tiles;
  bf16* out;
  float* logsumexp;
};

cudaError_t forward_wgmma(const ForwardArgs& args, bool paged, const AttentionDevice& device, cudaStream_t stream);
cudaError_t forward_wgmma_attributes(cudaFuncAttributes& attributes);
cudaError_t forward_mma(const ForwardArgs& args, bool paged, cudaStream_t stream);

template <int D, bool kPaged>
struct KeyLoader {
  using Thread = TileThread<D>;
  const ForwardArgs& p;
  int kv_head;
  Thread thread;
  PackedSequence sequence;

  // One chunk of keys, or of values; those from `end` on become zeros: a masked key's weight is 0, and 0 · garbage must
  // stay 0. Lane i < 8 gives page i of the chunk. Few instructions and registers: loaders share issue slots.
  __device__ __forceinline__ void load(bool values, int chunk, int end, int page, uint32_t target) const {
    const int first = chunk * kChunk;
    if constexpr (kPaged)
      load_pages(values, first, end, page, target);
    else
      load_rows(values ? p.v : p.k, first, end, target);
  }

 private:
  __device__ __forceinline__ void load_pages(bool values, int first, int end, int page, uint32_t target) const {
    constexpr int kPasses = kKvPage / Thread::kRowsPerPass;
    const int head = values ? p.shape.kv_heads + kv_head : kv_head;
    const bf16* base = p.paged.pages + head * (kKvPage * D) + thread.row * D + thread.piece * 8;
    const auto stride = static_cast<uint32_t>(p.paged.page_stride);
    const auto source = [&](int i) {
      return base + static_cast<uint64_t>(static_cast<uint32_t>(__shfl_sync(~0u, page, i))) * stride;
    };
    if (first + kChunk <= end) {
#pragma unroll
      for (int i = 0; i < kChunk / kKvPage; ++i) {
        const bf16* from = source(i);
#pragma unroll
        for (int n = 0; n < kPasses; ++n)
          copy_async(target + (i * kPasses + n) * Thread::kPassBytes, from + n * Thread::kRowsPerPass * D);
      }
    } else {
#pragma unroll 1
      for (int i = 0; i < kChunk / kKvPage; ++i) {
        const bf16* from = source(i);
        const int key = first + i * kKvPage + thread.row;
#pragma unroll
        for (int n = 0; n < kPasses; ++n)
          copy_async_or_zero(target + (i * kPasses + n) * Thread::kPassBytes, from + n * Thread::kRowsPerPass * D,
                             key + n * Thread::kRowsPerPass < end);
      }
    }
  }

  __device__ __forceinline__ void load_rows(const bf16* base, int first, int end, uint32_t target) const {
    constexpr int kPasses = kChunk / Thread::kRowsPerPass;
    base += kv_head * D + thread.piece * 8;
    const PackedSequence& s = sequence;
    if (first + kChunk <= end && (first >= s.prefix_len || first + kChunk <= s.prefix_len)) {
      const int row = first + thread.row + (first < s.prefix_len ? s.prefix_row : s.own_row - s.prefix_len);
      const bf16* source = base + row * p.kv_stride;
      const int64_t step = p.kv_stride * Thread::kRowsPerPass * 2;
#pragma unroll
      for (int i = 0; i < kPasses; ++i) {
        copy_async(target + i * Thread::kPassBytes, source);
        asm volatile("add.s64 %0, %0, %1;" : "+l"(source) : "l"(step));  // one address at a time: registers are scarce
      }
    } else {
#pragma unroll 1
      for (int i = 0; i < kPasses; ++i) {
        const int key = first + i * Thread::kRowsPerPass + thread.row;
        const bool keep = key < end;
        const int row = key < s.prefix_len ? s.prefix_row + key : s.own_row + key - s.prefix_len;
        copy_async_or_zero(target + i * Thread::kPassBytes, base + (keep ? row : 0) * p.kv_stride, keep);
      }
    }
  }
};

// Lane i: page i % 8 of chunk `chunk` of the tile's sequence.
template <bool kPaged>
__device__ __forceinline__ int fetch_page(const ForwardArgs& p, const QueryTile& tile, int chunk) {
  const int i = chunk * (kChunk / kKvPage) + (threadIdx.x & 7);
  return kPaged && i * kKvPage < tile.pos + tile.count ? __ldg(p.paged.page_table + tile.kv + i) : 0;
}
template <bool kPaged>
__device__ __forceinline__ PackedSequence fetch_sequence(const ForwardArgs& p, const QueryTile& tile) {
  return kPaged || tile.count == 0 ? PackedSequence{0, 0, 0, 0} : p.sequences[tile.kv];
}

}  // namespace tandem::cuda
