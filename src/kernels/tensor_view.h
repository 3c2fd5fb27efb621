// Checked raw pointers into CPU tensors, for the kernels' inner loops.
#pragma once

#include <ATen/core/Tensor.h>

#include "base/error.h"

namespace tandem::kernels {

inline float* f32(const at::Tensor& tensor) {
  check(tensor.scalar_type() == at::kFloat && tensor.is_contiguous(), "a contiguous fp32 tensor is wanted");
  return static_cast<float*>(tensor.data_ptr());
}

inline void check_shape(const at::Tensor& tensor, at::IntArrayRef shape) {
  check(tensor.sizes() == shape, "tensor has an unexpected shape");
}

}  // namespace tandem::kernels
