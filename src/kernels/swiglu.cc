#include "kernels/device_ops.h"
#include "kernels/parallel_for.h"
#include "kernels/simd.h"
#include "kernels/tensor_view.h"

namespace tandem::kernels {
namespace {

simd::F8 sigmoid(simd::F8 x) {
  const simd::F8 one = simd::splat(1.0f);
  return simd::div(one, simd::add(one, simd::exp(simd::sub(simd::zero(), x))));
}

}  // namespace

void swiglu(const at::Tensor& gate_up, at::Tensor& out) {
  const int64_t rows = gate_up.size(0), width = out.size(1);
  check_shape(gate_up, {rows, 2 * width});
  if (on_device(out)) return device_ops().swiglu(gate_up, out);
  const float* x = f32(gate_up);
  float* y = f32(out);
  parallel_for(rows, 8, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const float *gate = x + i * 2 * width, *up = gate + width;
      simd::for_vectors(width, [&](int64_t j, int64_t n) {
        const simd::F8 g = simd::load_n(gate + j, n);
        simd::store_n(y + i * width + j, n, simd::mul(simd::mul(g, sigmoid(g)), simd::load_n(up + j, n)));
      });
    }
  });
}

void swiglu_backward(const at::Tensor& dout, const at::Tensor& gate_up, at::Tensor& dgate_up, at::Tensor& out) {
  const int64_t rows = dout.size(0), width = dout.size(1);
  check_shape(gate_up, {rows, 2 * width});
  check_shape(dgate_up, gate_up.sizes());
  check_shape(out, dout.sizes());
  if (on_device(out)) return device_ops().swiglu_backward(dout, gate_up, dgate_up, out);
  const float *dy = f32(dout), *x = f32(gate_up);
  float *dx = f32(dgate_up), *y = f32(out);
  parallel_for(rows, 8, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const float *gate = x + i * 2 * width, *up = gate + width;
      float *dgate = dx + i * 2 * width, *dup = dgate + width;
      simd::for_vectors(width, [&](int64_t j, int64_t n) {
        const simd::F8 g = simd::load_n(gate + j, n), u = simd::load_n(up + j, n),
                       d = simd::load_n(dy + i * width + j, n);
        const simd::F8 s = sigmoid(g), silu = simd::mul(g, s);
        // silu' = s + silu · (1 − s)
        const simd::F8 slope = simd::fma(silu, simd::sub(simd::splat(1.0f), s), s);
        simd::store_n(dgate + j, n, simd::mul(simd::mul(d, u), slope));
        simd::store_n(dup + j, n, simd::mul(d, silu));
        simd::store_n(y + i * width + j, n, simd::mul(silu, u));
      });
    }
  });
}

}  // namespace tandem::kernels
