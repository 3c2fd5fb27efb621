#include <algorithm>

#include "kernels/device_ops.h"
#include "kernels/gemm.h"
#include "kernels/parallel_for.h"
#include "kernels/simd.h"
#include "kernels/tensor_view.h"

namespace tandem::kernels {

void linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, at::Tensor& out) {
  const int64_t rows = x.size(0), in = x.size(1), features = weight.size(0);
  check_shape(weight, {features, in});
  check_shape(out, {rows, features});
  if (on_device(x)) return device_ops().linear(x, weight, bias, out);
  gemm_nt(f32(x), f32(weight), f32(out), rows, features, in);
  if (!bias.defined()) return;
  check_shape(bias, {features});
  float* y = f32(out);
  const float* b = f32(bias);
  parallel_for(rows, 64, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i)
      for (int64_t j = 0; j < features; ++j) y[i * features + j] += b[j];
  });
}

void linear_backward_input(const at::Tensor& dout, const at::Tensor& weight, at::Tensor& dx) {
  const int64_t rows = dout.size(0), features = dout.size(1), in = weight.size(1);
  check_shape(weight, {features, in});
  check_shape(dx, {rows, in});
  if (on_device(dx)) return device_ops().linear_backward_input(dout, weight, dx);
  std::fill_n(f32(dx), dx.numel(), 0.0f);
  gemm_accumulate(f32(dout), features, 1, f32(weight), f32(dx), rows, in, features);
}

void linear_backward_weight(const at::Tensor& dout, const at::Tensor& x, at::Tensor& dweight, at::Tensor& dbias) {
  if (!dweight.defined()) return;
  const int64_t rows = dout.size(0), features = dout.size(1), in = x.size(1);
  check_shape(x, {rows, in});
  check_shape(dweight, {features, in});
  if (on_device(x)) return device_ops().linear_backward_weight(dout, x, dweight, dbias);
  gemm_accumulate(f32(dout), 1, features, f32(x), f32(dweight), features, in, rows);
  if (!dbias.defined()) return;
  check_shape(dbias, {features});
  const float* dy = f32(dout);
  float* db = f32(dbias);
  parallel_for(features, 256, [&](int64_t first, int64_t last) {
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = first; j < last; ++j) db[j] += dy[i * features + j];
  });
}

void add(at::Tensor& x, const at::Tensor& y) {
  check_shape(y, x.sizes());
  if (on_device(x)) return device_ops().add(x, y);
  float* a = f32(x);
  const float* b = f32(y);
  parallel_for(x.numel(), 1 << 14, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) a[i] += b[i];
  });
}

void add_to_columns(at::Tensor& x, int64_t first, float factor, const at::Tensor& y) {
  const int64_t rows = x.size(0), width = x.size(1), columns = y.size(1);
  check_shape(y, {rows, columns});
  check(first >= 0 && first + columns <= width, "columns outside the matrix");
  if (on_device(x)) return device_ops().add_to_columns(x, first, factor, y);
  float* to = f32(x) + first;
  const float* from = f32(y);
  const simd::F8 scale = simd::splat(factor);
  parallel_for(rows, 16, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      simd::for_vectors(columns, [&](int64_t j, int64_t n) {
        float* place = to + i * width + j;
        simd::store_n(place, n, simd::fma(scale, simd::load_n(from + i * columns + j, n), simd::load_n(place, n)));
      });
  });
}

void take_columns(const at::Tensor& x, int64_t first, float factor, at::Tensor& y) {
  const int64_t rows = x.size(0), width = x.size(1), columns = y.size(1);
  check_shape(y, {rows, columns});
  check(first >= 0 && first + columns <= width, "columns outside the matrix");
  if (on_device(x)) return device_ops().take_columns(x, first, factor, y);
  const float* from = f32(x) + first;
  float* to = f32(y);
  parallel_for(rows, 16, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      for (int64_t j = 0; j < columns; ++j) to[i * columns + j] = factor * from[i * width + j];
  });
}

}  // namespace tandem::kernels
