// The sampler's inputs and outputs, for one draw and for a recorded pass.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

#include "kernels/cuda/sampler.h"
#include "kernels/kernels.h"

namespace tandem::cuda {

static_assert(kMaxBarredIds == kernels::kMaxBarredIds);

struct DrawArrays {
  std::vector<SamplingRow> rows;
  std::vector<float> inverse_temperature;
  std::vector<int32_t> positions, barred;
  bool narrowing = false;
};
DrawArrays draw_arrays(std::span<const kernels::DrawRow> rows);

struct DrawInputs {  // on the device
  const SamplingRow* rows;
  const float* inverse_temperature;
  const int32_t* positions;
  const int32_t* barred;
};
// [5, rows] fp32: ids (as int32), log-probs, entropies, max, log_sum.
at::Tensor launch_draw(const at::Tensor& logits, int64_t num_drawable, const DrawInputs& inputs, bool narrowing);
// The first three rows of that, `stride` apart, on the host.
void read_drawn(const float* host, int64_t stride, std::span<kernels::Drawn> out);

}  // namespace tandem::cuda
