// out = bf16(silu(gate) · up), with gate_up_T2F = [gate | up]; fp32 inside. F is a multiple of 8.
#pragma once

#include "kernels/cuda/types.h"

namespace tandem::cuda {

cudaError_t swiglu(const bf16* gate_up_T2F, int64_t tokens, int64_t intermediate, bf16* out_TF, cudaStream_t stream);

// Sets dgate_up (which may be gate_up itself). out_TF, unless null, gets the forward's output again, bit for bit, so
// that it need not be kept.
cudaError_t swiglu_backward(const bf16* dout_TF, const bf16* gate_up_T2F, int64_t tokens, int64_t intermediate,
                            bf16* dgate_up_T2F, bf16* out_TF, cudaStream_t stream);

}  // namespace tandem::cuda
