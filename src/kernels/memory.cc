#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "kernels/kernels.h"

namespace tandem::kernels {

at::Tensor empty(at::IntArrayRef shape) { return at::empty(shape, at::kFloat); }
at::Tensor zeros(at::IntArrayRef shape) { return at::zeros(shape, at::kFloat); }

}  // namespace tandem::kernels
