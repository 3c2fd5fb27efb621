#include <cmath>

#include "kernels/device_ops.h"
#include "kernels/norm_row.h"
#include "kernels/parallel_for.h"
#include "kernels/tensor_view.h"

namespace tandem::kernels {

void rms_norm(const at::Tensor& x, const at::Tensor& weight, float eps, at::Tensor& out) {
  const int64_t rows = x.size(0), width = x.size(1);
  check_shape(weight, {width});
  check_shape(out, x.sizes());
  if (on_device(x)) return device_ops().rms_norm(x, weight, eps, out);
  const float *px = f32(x), *w = f32(weight);
  float* y = f32(out);
  parallel_for(rows, 16, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) norm_row(px + i * width, w, eps, width, y + i * width);
  });
}

void add_rms_norm(at::Tensor& x, const at::Tensor& y, const at::Tensor& weight, float eps, at::Tensor& out) {
  const int64_t rows = x.size(0), width = x.size(1);
  check_shape(weight, {width});
  check_shape(y, x.sizes());
  check_shape(out, x.sizes());
  if (on_device(x)) return device_ops().add_rms_norm(x, y, weight, eps, out);
  const float *py = f32(y), *w = f32(weight);
  float *px = f32(x), *po = f32(out);
  parallel_for(rows, 16, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      for (int64_t j = i * width; j < (i + 1) * width; ++j) px[j] += py[j];
      norm_row(px + i * width, w, eps, width, po + i * width);
    }
  });
}

void rms_norm_backward(const at::Tensor& dout, const at::Tensor& x, const at::Tensor& weight, float eps, at::Tensor& dx,
                       at::Tensor& dweight) {
  const int64_t rows = x.size(0), width = x.size(1);
  check_shape(dout, x.sizes());
  check_shape(dx, x.sizes());
  if (dweight.defined()) check_shape(dweight, {width});
  if (on_device(x)) return device_ops().rms_norm_backward(dout, x, weight, eps, dx, dweight);
  const float *dy = f32(dout), *px = f32(x), *w = f32(weight);
  float* gx = f32(dx);
  const at::Tensor inverse = empty({rows});
  float* inv = f32(inverse);
  parallel_for(rows, 16, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i)
      inv[i] = norm_row_backward(dy + i * width, px + i * width, w, eps, width, gx + i * width);
  });
  if (!dweight.defined()) return;
  float* gw = f32(dweight);
  // A column of dweight belongs to one thread and sums its rows in order.
  parallel_for(width, 64, [&](int64_t first, int64_t last) {
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = first; j < last; ++j) gw[j] += dy[i * width + j] * px[i * width + j] * inv[i];
  });
}

}  // namespace tandem::kernels
