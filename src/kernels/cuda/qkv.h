// What follows the fused projection: qkv_TN = [H query heads | K key heads | K value heads] (its bias already added) is
// cut into heads; q and k are normalised over D where the model has QK-norm and rotated by cos/sin at each token's
// position (halves paired as in Hugging Face); keys and values go to their pages. Norm and rotation run in fp32 and
// round once. Head dims: 32, 64, 128, 256.
#pragma once

#include "kernels/cuda/types.h"

namespace tandem::cuda {

struct QkvShape {
  int64_t tokens, heads, kv_heads, head_dim;
};

struct QkvTransform {
  const bf16 *q_norm_D, *k_norm_D;  // null: no QK-norm
  float eps;
  const float *cos_PD2, *sin_PD2;  // [positions, D/2]
};

// One layer's pages, [blocks][2][K][16][D] (keys, then values). slot = block · 16 + offset.
struct KvPages {
  bf16* base;
  int64_t block_stride;  // elements from one block to the next, at least 2·K·16·D
};
constexpr int kKeysPerPage = 16;

// Null: not wanted.
struct QkvOutputs {
  bf16* q_THD;
  bf16 *k_TKD, *v_TKD;
  KvPages pages;           // base null: none
  const int32_t* slots_T;  // where in the pages; negative: not stored
};

cudaError_t split_qkv(const bf16* qkv_TN, const QkvShape& shape, const QkvTransform& transform,
                      const int32_t* positions_T, const QkvOutputs& outputs, cudaStream_t stream);

// Token tokens_W[i] is stored at slots_W[i] (negative: skipped); a token may be stored at several slots.
cudaError_t write_kv(const bf16* k_TKD, const bf16* v_TKD, int64_t kv_heads, int64_t head_dim, const int32_t* tokens_W,
                     const int32_t* slots_W, int64_t writes, const KvPages& pages, cudaStream_t stream);

// Sets dqkv_TN; adds into dq_norm_D and dk_norm_D (null: not wanted; without QK-norm the workspace is null too).
size_t split_qkv_backward_workspace_bytes(const QkvShape& shape);
cudaError_t split_qkv_backward(const bf16* dq_THD, const bf16* dk_TKD, const bf16* dv_TKD, const bf16* qkv_TN,
                               const QkvShape& shape, const QkvTransform& transform, const int32_t* positions_T,
                               bf16* dqkv_TN, float* dq_norm_D, float* dk_norm_D, void* workspace, cudaStream_t stream);

}  // namespace tandem::cuda
