// Rows by index. Indices are not checked on the device: the caller has.
#pragma once

#include "kernels/cuda/types.h"

namespace tandem::cuda {

// out_RW = x[index_R]: embeddings, and the rows whose logits are wanted.
cudaError_t gather_rows(const bf16* x, const int32_t* index_R, int64_t rows, int64_t width, bf16* out_RW,
                        cudaStream_t stream);
// out[index_R] += x_RW, rounded once; the indices are distinct.
cudaError_t scatter_add_rows(const bf16* x_RW, const int32_t* index_R, int64_t rows, int64_t width, bf16* out,
                             cudaStream_t stream);

// dweight[id] += Σ of the rows of dout_TE that hold the id, in an order fixed by their number. The groups come from
// kernels/id_groups.h, uploaded.
struct IdGroupsOnDevice {
  const int32_t* ids_G;     // distinct ids
  const int32_t* starts_G;  // G + 1 offsets into order_T
  const int32_t* order_T;   // tokens, by id
  int64_t groups;
};
cudaError_t embedding_backward(const bf16* dout_TE, const IdGroupsOnDevice& groups, int64_t hidden, float* dweight_VE,
                               cudaStream_t stream);

// Copies block from_C[i] to to_C[i] in every layer; layers_L are device pointers, in device memory. No block may be
// both source and target.
cudaError_t copy_kv_blocks(bf16* const* layers_L, int64_t layers, int64_t block_stride, int64_t block_elements,
                           const int32_t* from_C, const int32_t* to_C, int64_t copies, cudaStream_t stream);

}  // namespace tandem::cuda
