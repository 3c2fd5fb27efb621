#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "kernels/device_ops.h"

namespace tandem::kernels {

at::Tensor empty(at::IntArrayRef shape) { return at::empty(shape, at::kFloat); }
at::Tensor zeros(at::IntArrayRef shape) { return at::zeros(shape, at::kFloat); }
at::Tensor empty(at::IntArrayRef shape, const at::Tensor& like) { return at::empty(shape, like.options()); }
at::Tensor empty_fp32(at::IntArrayRef shape, const at::Tensor& like) {
  return at::empty(shape, like.options().dtype(at::kFloat));
}

void synchronize(const at::Tensor& like) {
  if (on_device(like)) device_ops().synchronize(like);
}
DeviceMemory device_memory(const at::Tensor& like) {
  return on_device(like) ? device_ops().device_memory(like) : DeviceMemory{};
}

void upload(std::span<const HostCopy> copies) {
  if (!copies.empty()) device_ops().upload(copies);
}

}  // namespace tandem::kernels
