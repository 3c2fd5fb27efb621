// The ops that work row by row, against float64, and the law that a row knows nothing of the others.
#include "kernels/attention.h"

#include <numeric>

#include "kernels/gemm.h"
#include "kernels/reference.h"

namespace tandem::kernels {
namespace {

struct Shape {
  int64_t m, n, k;
};
const std::vector<Shape> kShapes = {{1, 1, 1},   {1, 7, 3},   {2, 3, 8},   {3, 4, 9},    {4, 5, 16},     {5, 2, 17},
                                    {6, 16, 15}, {7, 17, 31}, {13, 33, 7}, {97, 35, 40}, {101, 515, 12}, {11, 19, 530}};

TEST(Gemm, NtAgreesWithFloat64) {
  for (const auto& [m, n, k] : kShapes) {
    const auto a = random_tensor({m, k}, 1), b = random_tensor({n, k}, 2), c = filled({m, n}, NAN);
    gemm_nt(f32(a), f32(b), f32(c), m, n, k);
    Doubles wanted(m * n);
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j)
        for (int64_t p = 0; p < k; ++p) wanted[i * n + j] += double{floats(a)[i * k + p]} * floats(b)[j * k + p];
    SCOPED_TRACE(testing::Message() << m << " x " << n << " x " << k);
    expect_close(floats(c), wanted, 4e-6 * std::sqrt(k), "a bT");
  }
}

TEST(Gemm, AccumulateAgreesWithFloat64) {
  for (const auto& [m, n, k] : kShapes)
    for (const bool transposed : {false, true}) {
      const auto a = random_tensor({m * k}, 3), b = random_tensor({k, n}, 4), c = random_tensor({m, n}, 5);
      const int64_t row = transposed ? 1 : k, col = transposed ? m : 1;
      Doubles wanted = doubles(c);
      for (int64_t i = 0; i < m; ++i)
        for (int64_t j = 0; j < n; ++j)
          for (int64_t p = 0; p < k; ++p)
            wanted[i * n + j] += double{floats(a)[i * row + p * col]} * floats(b)[p * n + j];
      gemm_accumulate(f32(a), row, col, f32(b), f32(c), m, n, k);
      SCOPED_TRACE(testing::Message() << m << " x " << n << " x " << k << " " << transposed);
      expect_close(floats(c), wanted, 4e-6 * std::sqrt(k), "c + a b");
    }
}

TEST(Gemm, ThreadsChangeNoBit) {
  const int64_t m = 70, n = 203, k = 300;
  const auto a = random_tensor({m, k}, 1), b = random_tensor({n, k}, 2), b_kn = random_tensor({k, n}, 3);
  std::vector<at::Tensor> products, sums;
  for (const int threads : {1, 2, 3})
    with_threads(threads, [&] {
      products.push_back(zeros({m, n})), sums.push_back(filled({m, n}, 0.5f));
      gemm_nt(f32(a), f32(b), f32(products.back()), m, n, k);
      gemm_accumulate(f32(a), k, 1, f32(b_kn), f32(sums.back()), m, n, k);
    });
  for (int i = 1; i < 3; ++i) {
    EXPECT_TRUE(same_bits(floats(products[0]), floats(products[i])));
    EXPECT_TRUE(same_bits(floats(sums[0]), floats(sums[i])));
  }
}

// Runs a forward op on the first m of 512 rows, m = 1 ... 40, with one and two threads, and at other places in the
// batch.
void expect_rows_alone(const at::Tensor& x, const std::function<at::Tensor(const at::Tensor&)>& op, const char* what) {
  at::Tensor all;
  with_threads(1, [&] { all = op(x); });
  const int64_t width = all.numel() / all.size(0);
  const auto rows = [&](int64_t first, int64_t count) { return floats(all).subspan(first * width, count * width); };
  for (const int threads : {1, 2})
    with_threads(threads, [&] {
      EXPECT_TRUE(same_bits(floats(op(x)), floats(all))) << what << ", " << threads << " threads";
      for (int64_t m = 1; m <= 40; ++m)
        for (const int64_t first : {int64_t{0}, x.size(0) - m})
          ASSERT_TRUE(same_bits(floats(op(x.narrow(0, first, m))), rows(first, m)))
              << what << ": rows " << first << " + " << m << ", " << threads << " threads";
    });
}

TEST(Rows, KnowNothingOfTheOthers) {
  const int64_t width = 83, features = 61;
  const auto x = random_tensor({512, width}, 1), weight = random_tensor({features, width}, 2),
             bias = random_tensor({features}, 3), gamma = random_tensor({width}, 4),
             wide = random_tensor({512, 2 * 45}, 5);
  expect_rows_alone(
      x,
      [&](const at::Tensor& in) {
        at::Tensor out = filled({in.size(0), features}, NAN);
        linear(in, weight, bias, out);
        return out;
      },
      "linear");
  expect_rows_alone(
      x,
      [&](const at::Tensor& in) {
        at::Tensor out = filled(in.sizes(), NAN);
        rms_norm(in, gamma, 1e-6f, out);
        return out;
      },
      "rms_norm");
  expect_rows_alone(
      wide,
      [&](const at::Tensor& in) {
        at::Tensor out = filled({in.size(0), 45}, NAN);
        swiglu(in, out);
        return out;
      },
      "swiglu");
}

TEST(Rows, OfSplitQkvKnowNothingOfTheOthers) {
  const QkvTransform transform{{3, 1, 10}, random_tensor({10}, 1),   random_tensor({10}, 2),
                               1e-6f,      random_tensor({8, 5}, 3), random_tensor({8, 5}, 4)};
  const auto qkv = random_tensor({512, 50}, 5);
  std::vector<int32_t> positions(512, 6);
  expect_rows_alone(
      qkv,
      [&](const at::Tensor& in) {
        const int64_t m = in.size(0);
        at::Tensor q = filled({m, 3, 10}, NAN), k = filled({m, 1, 10}, NAN), v = filled({m, 1, 10}, NAN);
        split_qkv(in, transform, std::span(positions).first(m), q, k, v);
        at::Tensor out = empty({m, 50});
        for (int64_t i = 0; i < m; ++i) {
          std::ranges::copy(floats(q).subspan(i * 30, 30), floats(out).begin() + i * 50);
          std::ranges::copy(floats(k).subspan(i * 10, 10), floats(out).begin() + i * 50 + 30);
          std::ranges::copy(floats(v).subspan(i * 10, 10), floats(out).begin() + i * 50 + 40);
        }
        return out;
      },
      "split_qkv");
}

Doubles norm_rows(const Doubles& x, const Doubles& weight, double eps) {
  const size_t width = weight.size();
  Doubles out(x.size());
  for (size_t begin = 0; begin < x.size(); begin += width) {
    double squares = 0;
    for (size_t j = 0; j < width; ++j) squares += x[begin + j] * x[begin + j];
    for (size_t j = 0; j < width; ++j)
      out[begin + j] = x[begin + j] / std::sqrt(squares / static_cast<double>(width) + eps) * weight[j];
  }
  return out;
}

TEST(RmsNorm, ForwardAndGradient) {
  for (const int64_t width : {1, 5, 8, 19}) {
    const auto x = random_tensor({3, width}, 1), weight = random_tensor({width}, 2),
               dout = random_tensor({3, width}, 3);
    at::Tensor out = filled({3, width}, NAN);
    rms_norm(x, weight, 1e-3f, out);
    expect_close(floats(out), norm_rows(doubles(x), doubles(weight), 1e-3), 1e-6, "rms_norm");
    at::Tensor dx = filled({3, width}, 10), dweight = filled({width}, 20);  // gradients are added
    rms_norm_backward(dout, x, weight, 1e-3f, dx, dweight);
    auto wanted = numeric_gradient(
        [&](const Doubles& at) { return dot(floats(dout), norm_rows(at, doubles(weight), 1e-3)); }, doubles(x));
    for (double& v : wanted) v += 10;
    expect_close(floats(dx), wanted, 1e-5, "dx");
    wanted = numeric_gradient([&](const Doubles& at) { return dot(floats(dout), norm_rows(doubles(x), at, 1e-3)); },
                              doubles(weight));
    for (double& v : wanted) v += 20;
    expect_close(floats(dweight), wanted, 1e-5, "dweight");
  }
}

Doubles swiglu_rows(const Doubles& x, size_t width) {
  Doubles out;
  for (size_t begin = 0; begin < x.size(); begin += 2 * width)
    for (size_t j = 0; j < width; ++j) {
      const double gate = x[begin + j];
      out.push_back(gate / (1 + std::exp(-gate)) * x[begin + width + j]);
    }
  return out;
}

TEST(Swiglu, ForwardAndGradient) {
  for (const int64_t width : {1, 8, 13}) {
    const auto x = random_tensor({3, 2 * width}, 1, 4), dout = random_tensor({3, width}, 2);
    at::Tensor out = filled({3, width}, NAN), dx = filled({3, 2 * width}, NAN);
    swiglu(x, out);
    expect_close(floats(out), swiglu_rows(doubles(x), width), 2e-6, "swiglu");
    at::Tensor again = filled({3, width}, NAN);
    swiglu_backward(dout, x, dx, again);
    EXPECT_TRUE(std::ranges::equal(floats(again), floats(out)));
    expect_close(
        floats(dx),
        numeric_gradient([&](const Doubles& at) { return dot(floats(dout), swiglu_rows(at, width)); }, doubles(x)),
        1e-5, "dgate_up");
  }
}

TEST(Swiglu, FarFromZero) {
  const std::vector<float> gates = {-200, -88, 0, 88, 200, -1e30f, 1e30f};
  const auto count = static_cast<int64_t>(gates.size());
  at::Tensor x = filled({1, 2 * count}, 1), out = filled({1, count}, NAN), dx = filled({1, 2 * count}, NAN);
  std::ranges::copy(gates, floats(x).begin());
  swiglu(x, out);
  expect_close(floats(out), {0, 0, 0, 88, 200, 0, 1e30}, 1e-6, "silu");
  swiglu_backward(filled({1, count}, 1), x, dx, out);
  expect_close(floats(dx), {0, 0, .5, 1, 1, 0, 1, 0, 0, 0, 88, 200, 0, 1e30}, 1e-6, "gradient");
}

// q and k: norm over the head (if any), then pairs (i, i + D/2) turned by the position's angle. v: as it is.
Doubles split_in_doubles(const Doubles& qkv, const HeadShape& heads, const Doubles& q_norm, const Doubles& k_norm,
                         const Doubles& cos, const Doubles& sin, std::span<const int32_t> positions) {
  const auto [num_heads, kv_heads, dim] = heads;
  const int64_t all = num_heads + 2 * kv_heads, half = dim / 2;
  Doubles out;
  for (size_t t = 0; t < positions.size(); ++t)
    for (int64_t h = 0; h < all; ++h) {
      const auto begin = qkv.begin() + (static_cast<int64_t>(t) * all + h) * dim;
      Doubles x(begin, begin + dim);
      if (h < num_heads + kv_heads) {
        const Doubles& weight = h < num_heads ? q_norm : k_norm;
        if (!weight.empty()) x = norm_rows(x, weight, 1e-3);
        for (int64_t i = 0; i < half; ++i) {
          const double a = x[i], b = x[i + half], c = cos[positions[t] * half + i], s = sin[positions[t] * half + i];
          x[i] = a * c - b * s, x[i + half] = b * c + a * s;
        }
      }
      out.insert(out.end(), x.begin(), x.end());
    }
  return out;
}

TEST(SplitQkv, ForwardAndGradient) {
  const std::vector<int32_t> positions = {3, 0, 3, 6};
  for (const bool with_norm : {false, true})
    for (const HeadShape heads : {HeadShape{4, 2, 6}, {3, 1, 10}, {2, 2, 8}}) {
      const auto [num_heads, kv_heads, dim] = heads;
      const int64_t tokens = 4, all = num_heads + 2 * kv_heads;
      QkvTransform transform{heads, {}, {}, 1e-3f, random_tensor({7, dim / 2}, 1), random_tensor({7, dim / 2}, 2)};
      if (with_norm) transform.q_norm_D = random_tensor({dim}, 3), transform.k_norm_D = random_tensor({dim}, 4);
      const Doubles q_norm = with_norm ? doubles(transform.q_norm_D) : Doubles(),
                    k_norm = with_norm ? doubles(transform.k_norm_D) : Doubles();
      const auto qkv = random_tensor({tokens, all * dim}, 5), dqkv_out = random_tensor({tokens, all * dim}, 6);
      const auto split = [&](const Doubles& x, const Doubles& qn, const Doubles& kn) {
        return split_in_doubles(x, heads, qn, kn, doubles(transform.cos_PD2), doubles(transform.sin_PD2), positions);
      };
      // [token][q heads | k heads | v heads] into three tensors and back
      const auto shaped = [&](int64_t count) { return filled({tokens, count, dim}, NAN); };
      at::Tensor q = shaped(num_heads), k = shaped(kv_heads), v = shaped(kv_heads);
      const auto visit = [&](auto fn, at::Tensor& tq, at::Tensor& tk, at::Tensor& tv) {
        for (int64_t t = 0; t < tokens; ++t)
          for (int64_t j = 0; j < all * dim; ++j) {
            const int64_t q_end = num_heads * dim, k_end = q_end + kv_heads * dim;
            float& x = j < q_end   ? floats(tq)[t * q_end + j]
                       : j < k_end ? floats(tk)[t * kv_heads * dim + j - q_end]
                                   : floats(tv)[t * kv_heads * dim + j - k_end];
            fn(x, t * all * dim + j);
          }
      };
      split_qkv(qkv, transform, positions, q, k, v);
      const Doubles wanted = split(doubles(qkv), q_norm, k_norm);
      visit([&](float x, int64_t i) { ASSERT_NEAR(x, wanted[i], 2e-6 * (1 + std::abs(wanted[i]))) << i; }, q, k, v);

      at::Tensor dq = shaped(num_heads), dk = shaped(kv_heads), dv = shaped(kv_heads);
      visit([&](float& x, int64_t i) { x = floats(dqkv_out)[i]; }, dq, dk, dv);
      at::Tensor dqkv = filled(qkv.sizes(), NAN), dq_norm, dk_norm;
      if (with_norm) dq_norm = filled({dim}, 1), dk_norm = filled({dim}, 2);
      split_qkv_backward(dq, dk, dv, qkv, transform, positions, dqkv, dq_norm, dk_norm);
      const auto loss = [&](const Doubles& x, const Doubles& qn, const Doubles& kn) {
        return dot(floats(dqkv_out), split(x, qn, kn));
      };
      expect_close(floats(dqkv),
                   numeric_gradient([&](const Doubles& x) { return loss(x, q_norm, k_norm); }, doubles(qkv)), 2e-5,
                   "dqkv");
      if (!with_norm) continue;
      auto norm_gradient = numeric_gradient([&](const Doubles& x) { return loss(doubles(qkv), x, k_norm); }, q_norm);
      for (double& x : norm_gradient) x += 1;
      expect_close(floats(dq_norm), norm_gradient, 2e-5, "dq_norm");
      norm_gradient = numeric_gradient([&](const Doubles& x) { return loss(doubles(qkv), q_norm, x); }, k_norm);
      for (double& x : norm_gradient) x += 2;
      expect_close(floats(dk_norm), norm_gradient, 2e-5, "dk_norm");
    }
}

TEST(SplitQkv, APositionBeyondTheTableIsAnError) {
  const QkvTransform transform{{1, 1, 4}, {}, {}, 1e-6f, zeros({8, 2}), zeros({8, 2})};
  at::Tensor q = zeros({1, 1, 4}), k = zeros({1, 1, 4}), v = zeros({1, 1, 4});
  split_qkv(zeros({1, 12}), transform, std::vector<int32_t>{7}, q, k, v);
  for (const int32_t position : {8, -1})
    EXPECT_ANY_THROW(split_qkv(zeros({1, 12}), transform, std::vector<int32_t>{position}, q, k, v)) << position;
}

// out = x wT + b: dx = dout w; dw = doutT x and db = sum of dout are added.
TEST(Linear, Gradients) {
  const int64_t rows = 5, in = 7, features = 3;
  const auto x = random_tensor({rows, in}, 1), weight = random_tensor({features, in}, 2),
             dout = random_tensor({rows, features}, 3);
  at::Tensor dx = filled({rows, in}, 1), dweight = filled({features, in}, 2), dbias = filled({features}, 3);
  linear_backward_input(dout, weight, dx);
  linear_backward_weight(dout, x, dweight, dbias);
  Doubles wx(rows * in, 0), ww(features * in, 2), wb(features, 3);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < features; ++j) {
      const double g = floats(dout)[i * features + j];
      wb[j] += g;
      for (int64_t p = 0; p < in; ++p) {
        wx[i * in + p] += g * floats(weight)[j * in + p];
        ww[j * in + p] += g * floats(x)[i * in + p];
      }
    }
  expect_close(floats(dx), wx, 1e-6, "dx");
  expect_close(floats(dweight), ww, 1e-6, "dweight");
  expect_close(floats(dbias), wb, 1e-6, "dbias");
}

TEST(Columns, AreAddedToAndTaken) {
  for (const int64_t columns : {1, 8, 19}) {
    const auto x = random_tensor({5, 23}, 1), y = random_tensor({5, columns}, 2);
    at::Tensor sum = x.clone(), taken = filled({5, columns}, NAN);
    add_to_columns(sum, 3, -1.5f, y);
    take_columns(x, 3, -1.5f, taken);
    Doubles wanted = doubles(x), wanted_taken(5 * columns);
    for (int64_t i = 0; i < 5; ++i)
      for (int64_t j = 0; j < columns; ++j) {
        wanted[i * 23 + 3 + j] += -1.5 * floats(y)[i * columns + j];
        wanted_taken[i * columns + j] = -1.5 * floats(x)[i * 23 + 3 + j];
      }
    expect_close(floats(sum), wanted, 1e-6, "added");
    expect_close(floats(taken), wanted_taken, 1e-6, "taken");
  }
  at::Tensor small = filled({2, 4}, 0), wide = filled({2, 3}, 1);
  EXPECT_ANY_THROW(add_to_columns(small, 2, 1, wide));
  EXPECT_ANY_THROW(take_columns(small, -1, 1, wide));
}

// A weight whose gradient is left undefined is not trained: the other gradients are the same.
TEST(Backward, AnUndefinedGradientIsNotComputed) {
  const auto x = random_tensor({6, 16}, 1), dout = random_tensor({6, 16}, 2), weight = random_tensor({16}, 3);
  at::Tensor dx = filled({6, 16}, 0), other = filled({6, 16}, 0), dweight = filled({16}, 0), none;
  rms_norm_backward(dout, x, weight, 1e-6f, dx, dweight);
  rms_norm_backward(dout, x, weight, 1e-6f, other, none);
  EXPECT_TRUE(std::ranges::equal(floats(dx), floats(other)));
  linear_backward_weight(dout, x, none, none);
  EXPECT_FALSE(none.defined());
  const QkvTransform transform{{2, 1, 4}, random_tensor({4}, 1),    random_tensor({4}, 2),
                               1e-6f,     random_tensor({8, 2}, 3), random_tensor({8, 2}, 4)};
  const auto qkv = random_tensor({6, 16}, 5), dq = random_tensor({6, 2, 4}, 6), dk = random_tensor({6, 1, 4}, 7),
             dv = random_tensor({6, 1, 4}, 8);
  const std::vector<int32_t> positions = {0, 1, 2, 3, 4, 5};
  at::Tensor dqkv = filled({6, 16}, NAN), again = filled({6, 16}, NAN), dq_norm = filled({4}, 0),
             dk_norm = filled({4}, 0);
  split_qkv_backward(dq, dk, dv, qkv, transform, positions, dqkv, dq_norm, dk_norm);
  split_qkv_backward(dq, dk, dv, qkv, transform, positions, again, none, none);
  EXPECT_TRUE(std::ranges::equal(floats(dqkv), floats(again)));
}

TEST(Embedding, PicksRowsAndAddsGradients) {
  const std::vector<int32_t> ids = {2, 0, 2};
  const auto weight = random_tensor({3, 5}, 1), dout = random_tensor({3, 5}, 2);
  at::Tensor out = filled({3, 5}, NAN), dweight = filled({3, 5}, 1);
  const TokenBatch tokens{ids, {}, {}, {}, 0};
  const PlacedBatch batch{tokens, KeyLayout::kPacked, nullptr};
  embedding(batch, weight, out);
  embedding_backward(batch, dout, dweight);
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(floats(out)[i], floats(weight)[10 + i]);
    EXPECT_EQ(floats(out)[5 + i], floats(weight)[i]);
    EXPECT_NEAR(floats(dweight)[i], 1 + floats(dout)[5 + i], 1e-6);
    EXPECT_EQ(floats(dweight)[5 + i], 1);
    EXPECT_NEAR(floats(dweight)[10 + i], 1 + floats(dout)[i] + floats(dout)[10 + i], 1e-6);
  }
  for (const int32_t outside : {3, -1}) {
    const TokenBatch bad{{outside, 0, 0}, {}, {}, {}, 0};
    EXPECT_ANY_THROW(embedding({bad, KeyLayout::kPacked, nullptr}, weight, out)) << outside;
  }
}

TEST(SumOfSquares, IsExactForIntegersAndSeesEveryElement) {
  at::Tensor x = empty({3, 4099});
  std::iota(floats(x).begin(), floats(x).end(), 1.0f);
  const double n = 3 * 4099;
  EXPECT_EQ(sum_of_squares({&x, 1}), n * (n + 1) * (2 * n + 1) / 6);
  floats(x)[9000] = NAN;
  EXPECT_TRUE(std::isnan(sum_of_squares({&x, 1})));
  const at::Tensor two[] = {filled({1}, 1e30f), filled({2}, 0.5f)};
  EXPECT_EQ(sum_of_squares(two), double{1e30f} * double{1e30f} + 0.5);
}

}  // namespace
}  // namespace tandem::kernels
