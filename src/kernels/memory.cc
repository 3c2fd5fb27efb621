#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "kernels/device_ops.h"
#include "kernels/tensor_view.h"

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
void reset_peak_memory(const at::Tensor& like) {
  if (on_device(like)) device_ops().reset_peak_memory(like);
}

Mark mark(const at::Tensor& like) { return on_device(like) ? device_ops().mark(like) : nullptr; }
void run_beside(const at::Tensor& like, const Mark& after, const std::function<void()>& work) {
  on_device(like) ? device_ops().run_beside(like, after, work) : work();
}

void accumulate(const at::Tensor& to, const at::Tensor& from) {
  check(to.numel() == from.numel(), "values of two lengths cannot be added");
  if (on_device(to)) return device_ops().accumulate(to, from);
  float* sums = f32(to);
  const float* terms = f32(from);
  for (int64_t i = 0; i < to.numel(); ++i) sums[i] += terms[i];
}

void set_to_zero(const at::Tensor& tensor) {
  if (on_device(tensor)) {
    tensor.zero_();
  } else {
    std::fill_n(f32(tensor), tensor.numel(), 0.0f);
  }
}

void upload(std::span<const HostCopy> copies) {
  if (!copies.empty()) device_ops().upload(copies);
}

}  // namespace tandem::kernels
