// AdamW (Loshchilov & Hutter 2019, arXiv:1711.05101) over many tensors in one launch: fp32 gradients, masters and
// moments; the bf16 compute weight is the master, rounded. Decay is decoupled and scaled by lr.
#pragma once

#include "kernels/cuda/types.h"

namespace tandem::cuda {

// Tensors are cut into chunks; a block takes one. chunk_starts has a tensor's first chunk, and at its end their number
// (kernels/chunks.h makes it on the host). Both tables lie in device memory.
constexpr int64_t kOptimizerChunk = 16384;
constexpr int64_t kSquareChunk = 4096;  // of block_squares()

struct OptimizerTensor {
  const float* gradient;
  float *weight, *moment1, *moment2;
  bf16* compute_weight;  // null: none
  int64_t size;
};

struct OptimizerTable {
  const OptimizerTensor* tensors;
  const int64_t* chunk_starts;
  int64_t num_tensors, num_chunks;
};

struct AdamW {
  double lr, beta1, beta2, eps, weight_decay;
  int64_t step;  // 1 for the first update
};

// gradient_scale: one float on the device, null for 1.
cudaError_t adamw(const OptimizerTable& table, const AdamW& settings, const float* gradient_scale, cudaStream_t stream);

cudaError_t spread_rounded(float* values, int64_t count, uint64_t key, cudaStream_t stream);

// Σ of the squares of each chunk of the gradients, in fp64, by a fixed tree. The table counts chunks of kSquareChunk.
cudaError_t block_squares(const OptimizerTable& table, double* sums, cudaStream_t stream);

// to += from
cudaError_t accumulate(float* to, const float* from, int64_t size, cudaStream_t stream);

// scale = min(1, max_norm / (sqrt(sum_of_squares) + 1e-6)); 1 where max_norm ≤ 0.
cudaError_t clip_scale(const double* sum_of_squares, double max_norm, float* scale, cudaStream_t stream);

}  // namespace tandem::cuda
