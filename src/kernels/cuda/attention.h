// Attention on the GPU: decode and prefill over the paged cache, the packed training forward, and its backward.
//
// H query heads, K key/value heads (H / K from 1 to kMaxHeadGroup), D head dim (64 or 128), T rows. Everything is
// causal. q, k, v, out and their gradients are bf16; scores, sums and logsumexp fp32. Strides count elements.
// A row of out and logsumexp has the same bits in every forward path, on the Hopper (wgmma) and on the mma.sync
// kernels, at any batch, tiling, page order and sharing of prefixes. The backward's sums run in a fixed order, which
// differs between the two kinds of kernel.
// What lies in unused slots of a page is never read into a result. A value that is not finite at a visible position
// spoils the rows that see it; in prefill and packed also earlier rows of its sequence within the same chunk.
//
// Launchers allocate nothing, never synchronise and may be captured. They return the launch's error, or
// cudaErrorInvalidValue for a shape that no kernel serves. Pointers are device memory, 16-byte aligned; row and page
// strides are multiples of 8. Thread-safe on distinct outputs and workspaces.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/cuda/attention_plan.h"

namespace tandem::cuda {

// Chooses kernels and grid sizes; ask once for the current device. Clearing `wgmma` picks the mma.sync kernels.
struct AttentionDevice {
  int32_t multiprocessors;
  bool wgmma;  // compute capability 9.0, and this library holds code for it
};
cudaError_t attention_device(AttentionDevice& device);

struct AttentionShape {
  int32_t heads;
  int32_t kv_heads;
  int32_t head_dim;
  float scale;  // of q · k, usually 1 / √head_dim
};
constexpr bool is_supported(const AttentionShape& shape) {
  return (shape.head_dim == 64 || shape.head_dim == 128) && shape.kv_heads > 0 && shape.heads % shape.kv_heads == 0 &&
         shape.heads / shape.kv_heads >= 1 && shape.heads / shape.kv_heads <= kMaxHeadGroup;
}

// Pages are [2][K][kKvPage][D], keys then values.
struct PagedKv {
  const __nv_bfloat16* pages;
  int64_t page_stride;  // at least 2 · K · kKvPage · D
  const int32_t* page_table;
};

// One query a sequence (plan_decode). Only counts->items items and counts->sequences rows are worked on; the grid
// depends on the capacities alone.
struct DecodeAttention {
  AttentionShape shape;
  const __nv_bfloat16* q_SHD;
  int64_t q_stride;
  PagedKv kv;
  const DecodeItem* items;
  const DecodeMember* members;
  const SlotRange* slots;
  const DecodeCounts* counts;
  int32_t max_items, max_sequences, max_slots;
  void* workspace;
  __nv_bfloat16* out_SHD;
  float* logsumexp_SH;
};
int64_t decode_attention_workspace(const AttentionShape& shape, int32_t max_slots);  // bytes
cudaError_t decode_attention(const DecodeAttention& args, const AttentionDevice& device, cudaStream_t stream);

// Query tiles of plan_query_tiles; a sequence's keys lie in pages, its queries' own included.
struct PagedAttention {
  AttentionShape shape;
  const __nv_bfloat16* q_THD;
  int64_t q_stride;
  PagedKv kv;
  const QueryTile* tiles;
  int32_t num_tiles;
  __nv_bfloat16* out_THD;
  float* logsumexp_TH;
};
cudaError_t paged_attention(const PagedAttention& args, const AttentionDevice& device, cudaStream_t stream);

// Query tiles of plan_packed; keys and values are rows beside the queries.
struct PackedAttention {
  AttentionShape shape;
  const __nv_bfloat16 *q_THD, *k_TKD, *v_TKD;
  int64_t q_stride, kv_stride;
  const PackedSequence* sequences;
  const QueryTile* tiles;
  int32_t num_tiles;
  __nv_bfloat16* out_THD;
  float* logsumexp_TH;
};
cudaError_t packed_attention(const PackedAttention& args, const AttentionDevice& device, cudaStream_t stream);

// Sets dq, dk, dv of every row that the plan names, given out and logsumexp of packed_attention. A shared prefix's keys
// get the gradient of all the samples that see them, in the order of `sequences`; heads of a KV group add up in order.
struct PackedAttentionBackward {
  AttentionShape shape;
  const __nv_bfloat16 *q_THD, *k_TKD, *v_TKD, *out_THD, *dout_THD;
  const float* logsumexp_TH;
  int64_t q_stride, kv_stride;  // of q; of k and v. out and dout are contiguous.
  int32_t rows;
  const PackedSequence* sequences;
  const QueryTile* query_tiles;
  const KeyTile* key_tiles;
  const QueryTile* key_runs;
  int32_t num_query_tiles, num_key_tiles;
  void* workspace;
  __nv_bfloat16 *dq_THD, *dk_TKD, *dv_TKD;
  int64_t dq_stride, dkv_stride;
};
int64_t packed_attention_backward_workspace(const AttentionShape& shape, int32_t rows);  // bytes
cudaError_t packed_attention_backward(const PackedAttentionBackward& args, const AttentionDevice& device,
                                      cudaStream_t stream);

}  // namespace tandem::cuda
