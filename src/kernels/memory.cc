#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "kernels/kernels.h"

namespace tandem::kernels {

at::Tensor empty(at::IntArrayRef shape) { return at::empty(shape, at::kFloat); }
at::Tensor zeros(at::IntArrayRef shape) { return at::zeros(shape, at::kFloat); }
at::Tensor empty(at::IntArrayRef shape, const at::Tensor& like) { return at::empty(shape, like.options()); }
at::Tensor empty_fp32(at::IntArrayRef shape, const at::Tensor& like) {
  return at::empty(shape, like.options().dtype(at::kFloat));
}

}  // namespace tandem::kernels
