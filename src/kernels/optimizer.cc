#include <cmath>
#include <vector>

#include "kernels/device_ops.h"
#include "kernels/parallel_for.h"
#include "kernels/simd.h"
#include "kernels/tensor_view.h"

namespace tandem::kernels {
namespace {

void update(const AdamW& a, const AdamWTensors& t) {
  using simd::F8;
  const double correction1 = 1.0 - std::pow(a.beta1, static_cast<double>(a.step));
  const double correction2 = 1.0 - std::pow(a.beta2, static_cast<double>(a.step));
  const auto lane = [](double x) { return simd::splat(static_cast<float>(x)); };
  const F8 clip = lane(a.gradient_scale), b1 = lane(a.beta1), c1 = lane(1.0 - a.beta1), b2 = lane(a.beta2),
           c2 = lane(1.0 - a.beta2), keep = lane(1.0 - a.lr * a.weight_decay), rate = lane(-a.lr / correction1),
           root = lane(1.0 / std::sqrt(correction2)), eps = lane(a.eps);
  check(!t.compute_weight.defined(), "on the CPU a weight is its own master");
  const float* g = f32(t.gradient);
  float *w = f32(t.weight), *m = f32(t.moment1), *v = f32(t.moment2);
  constexpr int64_t kBlock = 4096;
  const int64_t size = t.weight.numel(), blocks = (size + kBlock - 1) / kBlock;
  parallel_for(blocks, 4, [&](int64_t first, int64_t last) {
    const int64_t begin = first * kBlock;
    simd::for_vectors(std::min(size, last * kBlock) - begin, [&](int64_t offset, int64_t n) {
      const int64_t i = begin + offset;
      const F8 grad = simd::mul(simd::load_n(g + i, n), clip);
      const F8 m1 = simd::fma(b1, simd::load_n(m + i, n), simd::mul(c1, grad));
      const F8 m2 = simd::fma(b2, simd::load_n(v + i, n), simd::mul(simd::mul(c2, grad), grad));
      const F8 step = simd::div(m1, simd::fma(simd::sqrt(m2), root, eps));
      simd::store_n(m + i, n, m1);
      simd::store_n(v + i, n, m2);
      simd::store_n(w + i, n, simd::fma(rate, step, simd::mul(simd::load_n(w + i, n), keep)));
    });
  });
}

}  // namespace

void adamw(const AdamW& settings, std::span<const AdamWTensors> all) {
  if (!all.empty() && on_device(all[0].weight)) return device_ops().adamw(settings, all);
  for (const AdamWTensors& tensors : all) update(settings, tensors);
}

namespace {

std::vector<double> squares_of(const at::Tensor& x) {
  const float* p = f32(x);
  const int64_t size = x.numel(), blocks = (size + kSquareBlock - 1) / kSquareBlock;
  std::vector<double> partial(static_cast<size_t>(blocks));
  parallel_for(blocks, 16, [&](int64_t first, int64_t last) {
    for (int64_t b = first; b < last; ++b) {
      double sum = 0;
      for (int64_t i = b * kSquareBlock; i < std::min(size, (b + 1) * kSquareBlock); ++i)
        sum += static_cast<double>(p[i]) * p[i];
      partial[b] = sum;
    }
  });
  return partial;
}

}  // namespace

std::vector<std::vector<double>> block_squares(std::span<const at::Tensor> all) {
  if (!all.empty() && on_device(all[0])) return device_ops().block_squares(all);
  std::vector<std::vector<double>> squares;
  for (const at::Tensor& tensor : all) squares.push_back(squares_of(tensor));
  return squares;
}

std::vector<double> block_squares(const at::Tensor& tensor) { return block_squares({&tensor, 1})[0]; }

double sum_of_squares(std::span<const at::Tensor> all) {
  double total = 0;
  for (const std::vector<double>& squares : block_squares(all)) {
    double sum = 0;
    for (const double square : squares) sum += square;
    total += sum;
  }
  return total;
}

}  // namespace tandem::kernels
