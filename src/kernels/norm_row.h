// RMSNorm of one row, for whole hidden states and for single heads (QK-norm) alike.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/simd.h"

namespace tandem::kernels {

inline float inverse_rms(const float* x, float eps, int64_t width) {
  simd::F8 squares = simd::zero();
  simd::for_vectors(width, [&](int64_t i, int64_t n) {
    const simd::F8 v = simd::load_n(x + i, n);
    squares = simd::fma(v, v, squares);
  });
  return 1.0f / std::sqrt(simd::sum(squares) / static_cast<float>(width) + eps);
}

inline void norm_row(const float* x, const float* weight, float eps, int64_t width, float* out) {
  const simd::F8 scale = simd::splat(inverse_rms(x, eps, width));
  simd::for_vectors(width, [&](int64_t i, int64_t n) {
    simd::store_n(out + i, n, simd::mul(simd::mul(simd::load_n(x + i, n), scale), simd::load_n(weight + i, n)));
  });
}

// dx += inv · (dy·w − x · inv² · mean(dy·w·x)); returns inv = 1 / rms(x).
inline float norm_row_backward(const float* dy, const float* x, const float* weight, float eps, int64_t width,
                               float* dx) {
  const float inv = inverse_rms(x, eps, width);
  simd::F8 dots = simd::zero();
  simd::for_vectors(width, [&](int64_t i, int64_t n) {
    const simd::F8 g = simd::mul(simd::load_n(dy + i, n), simd::load_n(weight + i, n));
    dots = simd::fma(g, simd::load_n(x + i, n), dots);
  });
  const simd::F8 pull = simd::splat(-inv * inv * simd::sum(dots) / static_cast<float>(width));
  simd::for_vectors(width, [&](int64_t i, int64_t n) {
    const simd::F8 g = simd::mul(simd::load_n(dy + i, n), simd::load_n(weight + i, n));
    const simd::F8 direction = simd::fma(simd::load_n(x + i, n), pull, g);
    simd::store_n(dx + i, n, simd::fma(direction, simd::splat(inv), simd::load_n(dx + i, n)));
  });
  return inv;
}

}  // namespace tandem::kernels
