// Random tensors, and comparing them with plain loops in float64.
#pragma once

#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <vector>

#include "base/rng.h"
#include "kernels/kernels.h"
#include "kernels/tensor_view.h"

namespace tandem::kernels {

using Doubles = std::vector<double>;

inline std::span<float> floats(const at::Tensor& tensor) { return {f32(tensor), static_cast<size_t>(tensor.numel())}; }

inline at::Tensor random_tensor(at::IntArrayRef shape, uint64_t stream, double scale = 1) {
  at::Tensor tensor = empty(shape);
  Philox random(11, stream);
  for (float& x : floats(tensor)) x = static_cast<float>(scale * random.normal());
  return tensor;
}

inline at::Tensor filled(at::IntArrayRef shape, float value) {
  at::Tensor tensor = empty(shape);
  std::ranges::fill(floats(tensor), value);
  return tensor;
}

inline void expect_close(std::span<const float> got, const Doubles& wanted, double tolerance, const char* what) {
  ASSERT_EQ(got.size(), wanted.size()) << what;
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(got[i], wanted[i], tolerance * (1 + std::abs(wanted[i]))) << what << " [" << i << "]";
}

inline bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// d f / d x by central differences of a function in float64.
inline Doubles numeric_gradient(const std::function<double(const Doubles&)>& f, Doubles x) {
  Doubles gradient(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    const double kept = x[i], h = 1e-5;
    x[i] = kept + h;
    const double above = f(x);
    x[i] = kept - h;
    gradient[i] = (above - f(x)) / (2 * h);
    x[i] = kept;
  }
  return gradient;
}

inline Doubles doubles(const at::Tensor& tensor) {
  const auto x = floats(tensor);
  return {x.begin(), x.end()};
}

inline double dot(std::span<const float> a, const Doubles& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// Runs `work` with this many threads and puts the old number back.
template <class Fn>
void with_threads(int threads, Fn work) {
  const int before = omp_get_max_threads();
  omp_set_num_threads(threads);
  work();
  omp_set_num_threads(before);
}

}  // namespace tandem::kernels
