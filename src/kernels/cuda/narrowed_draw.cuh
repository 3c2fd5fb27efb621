// The draw from rows with top_k, top_p or min_p.
#pragma once

#include "kernels/cuda/sampler_row.cuh"

namespace tandem::cuda {

cudaError_t draw_narrowed(const SamplerInputs& inputs, const SamplerOutputs& outputs, const BlockStats* parts,
                          bool aligned, cudaStream_t stream);

}  // namespace tandem::cuda
