#include <cstring>

#include "kernels/device_ops.h"
#include "kernels/parallel_for.h"
#include "kernels/tensor_view.h"

namespace tandem::kernels {

void embedding(const PlacedBatch& batch, const at::Tensor& weight, at::Tensor& out) {
  const std::vector<int32_t>& ids = batch.tokens.ids;
  const int64_t rows = static_cast<int64_t>(ids.size()), width = weight.size(1);
  check_shape(out, {rows, width});
  for (const int32_t id : ids) check(id >= 0 && id < weight.size(0), "token id outside the vocabulary");
  if (on_device(out)) return device_ops().embedding(batch, weight, out);
  const float* w = f32(weight);
  float* y = f32(out);
  for (int64_t i = 0; i < rows; ++i)
    std::memcpy(y + i * width, w + ids[i] * width, static_cast<size_t>(width) * sizeof(float));
}

void embedding_backward(const PlacedBatch& batch, const at::Tensor& dout, at::Tensor& dweight) {
  if (!dweight.defined()) return;
  const std::vector<int32_t>& ids = batch.tokens.ids;
  const int64_t rows = static_cast<int64_t>(ids.size()), width = dweight.size(1);
  check_shape(dout, {rows, width});
  if (on_device(dout)) return device_ops().embedding_backward(batch, dout, dweight);
  const float* dy = f32(dout);
  float* dw = f32(dweight);
  // Columns are split over threads, so that equal ids add up in the order of the batch.
  parallel_for(width, 64, [&](int64_t first, int64_t last) {
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = first; j < last; ++j) dw[ids[i] * width + j] += dy[i * width + j];
  });
}

void gather_rows(const at::Tensor& x, std::span<const int32_t> rows, at::Tensor& out) {
  const int64_t width = x.size(1);
  check_shape(out, {static_cast<int64_t>(rows.size()), width});
  if (on_device(x)) return device_ops().gather_rows(x, rows, out);
  const float* source = f32(x);
  float* target = f32(out);
  for (size_t i = 0; i < rows.size(); ++i)
    std::memcpy(target + i * width, source + rows[i] * width, static_cast<size_t>(width) * sizeof(float));
}

void gather_rows_backward(const at::Tensor& dout, std::span<const int32_t> rows, at::Tensor& dx) {
  const int64_t width = dx.size(1);
  check_shape(dout, {static_cast<int64_t>(rows.size()), width});
  if (on_device(dx)) return device_ops().gather_rows_backward(dout, rows, dx);
  const float* source = f32(dout);
  float* target = f32(dx);
  for (size_t i = 0; i < rows.size(); ++i)
    for (int64_t j = 0; j < width; ++j) target[rows[i] * width + j] += source[i * width + j];
}

}  // namespace tandem::kernels
