// RMSNorm of whole hidden states: out = bf16(x · inv · weight), inv = 1 / sqrt(mean(x²) + eps), all in fp32.
// The residual stream x is bf16. The add rounds once, to nearest even, and the norm reads the rounded sum, so that
// add_rms_norm equals add followed by rms_norm bit for bit, in rollout and in training.
// Hidden sizes: multiples of 8 up to 8192.
#pragma once

#include "kernels/cuda/types.h"

namespace tandem::cuda {

cudaError_t rms_norm(const bf16* x_TE, const bf16* weight_E, float eps, int64_t tokens, int64_t hidden, bf16* out_TE,
                     cudaStream_t stream);

// x += y, then out = norm(x).
cudaError_t add_rms_norm(bf16* x_TE, const bf16* y_TE, const bf16* weight_E, float eps, int64_t tokens, int64_t hidden,
                         bf16* out_TE, cudaStream_t stream);

// x += y, elementwise; `size` is a multiple of 8.
cudaError_t add(bf16* x, const bf16* y, int64_t size, cudaStream_t stream);

// dx += (rounded once); dweight += (null: not wanted). The workspace needs no clearing.
size_t rms_norm_backward_workspace_bytes(int64_t tokens, int64_t hidden);
cudaError_t rms_norm_backward(const bf16* dout_TE, const bf16* x_TE, const bf16* weight_E, float eps, int64_t tokens,
                              int64_t hidden, bf16* dx_TE, float* dweight_E, void* workspace, cudaStream_t stream);

}  // namespace tandem::cuda
