// Log-probs, entropy, drawing and their gradient against float64, in ordinary rows and at the edges.
#include <limits>

#include "kernels/kernels.h"
#include "kernels/reference.h"

namespace tandem::kernels {
namespace {

struct Softmax {
  Doubles logprobs;
  double entropy = 0;
};

Softmax softmax(std::span<const double> logits, double inv_temperature) {
  double top = -std::numeric_limits<double>::infinity(), sum = 0;
  for (const double x : logits) top = std::max(top, x * inv_temperature);
  for (const double x : logits) sum += std::exp(x * inv_temperature - top);
  Softmax out;
  for (const double x : logits) {
    out.logprobs.push_back(x * inv_temperature - top - std::log(sum));
    const double p = std::exp(out.logprobs.back());
    if (p > 0) out.entropy -= p * out.logprobs.back();
  }
  return out;
}

std::vector<float> random_row(int64_t size, double scale, uint64_t stream) {
  const auto tensor = random_tensor({size}, stream, scale);
  return {floats(tensor).begin(), floats(tensor).end()};
}

void expect_like_float64(std::span<const float> row, float inv_temperature, double tolerance) {
  const Doubles wide(row.begin(), row.end());
  const Softmax wanted = softmax(wide, inv_temperature);
  const RowStats stats = row_stats(row, inv_temperature, true);
  for (size_t i = 0; i < row.size(); ++i)
    ASSERT_NEAR(logprob(row, static_cast<int32_t>(i), inv_temperature, stats), wanted.logprobs[i],
                tolerance * (1 + std::abs(wanted.logprobs[i])))
        << i;
  EXPECT_NEAR(stats.entropy, wanted.entropy, 10 * tolerance);
}

TEST(LogSoftmax, AgreesWithFloat64) {
  for (const int64_t size : {1, 2, 7, 8, 9, 96, 1023, 1024, 1025, 3001})
    for (const float inv_temperature : {1.0f, 1 / 0.7f, 0.25f, 5.0f}) {
      SCOPED_TRACE(testing::Message() << size << " " << inv_temperature);
      expect_like_float64(random_row(size, 3, 1), inv_temperature, 1e-6);
    }
}

// After token p only ids 0, 1, 2 are possible, with logits 2, 1, 0. At T = 0.6: log(1 + e^-1.6667 + e^-3.3333) =
// 0.202573; entropy 0.556749. Impossible ids keep finite log-probs.
TEST(LogSoftmax, OnlyThreePossible) {
  std::vector<float> row(1024, -10000.0f);
  row[0] = 2, row[1] = 1, row[2] = 0;
  const auto inv = static_cast<float>(1 / 0.6);
  const RowStats stats = row_stats(row, inv, true);
  for (const auto& [id, wanted] : {std::pair{0, -0.202573}, {1, -1.869240}, {2, -3.535906}})
    EXPECT_NEAR(logprob(row, id, inv, stats), wanted, 1e-6);
  EXPECT_NEAR(stats.entropy, 0.556749, 1e-6);
  EXPECT_TRUE(std::isfinite(logprob(row, 700, inv, stats)));
  EXPECT_LT(logprob(row, 700, inv, stats), -16000);
}

TEST(LogSoftmax, ExtremesStayFinite) {
  const float most = std::numeric_limits<float>::max() / 4;
  for (std::vector<float> row : {std::vector<float>(11, -10000.0f),
                                 std::vector<float>(11, 1e6f),
                                 {0, -10000, 10000, 1, 2, 3, 4, 5, 6},
                                 {most, -most, 0},
                                 {-most, -most, -most, -most, -most},
                                 {-10000, -10001, -9999},
                                 {0}}) {
    const RowStats stats = row_stats(row, 1, true);
    EXPECT_TRUE(std::isfinite(stats.max) && std::isfinite(stats.log_sum) && std::isfinite(stats.entropy)) << row[0];
    double sum = 0;
    for (size_t i = 0; i < row.size(); ++i) sum += std::exp(double{logprob(row, static_cast<int32_t>(i), 1, stats)});
    EXPECT_NEAR(sum, 1, 1e-6) << row[0];
    EXPECT_GE(stats.entropy, -1e-6);
    std::vector<float> slopes = row;
    logits_backward(slopes, 1, stats, std::vector<TargetGradient>{{0, 1.0f}}, 0.5f);
    for (const float x : slopes) EXPECT_TRUE(std::isfinite(x)) << row[0];
  }
  // All equal: log 1/11 and the greatest entropy.
  const std::vector<float> flat(11, -10000.0f);
  const RowStats stats = row_stats(flat, 1, true);
  EXPECT_NEAR(logprob(flat, 3, 1, stats), -std::log(11.0), 1e-6);
  EXPECT_NEAR(stats.entropy, std::log(11.0), 1e-6);
  // Banned ids at -infinity.
  const std::vector<float> banned = {0, -std::numeric_limits<float>::infinity(), 0, 0};
  EXPECT_NEAR(row_stats(banned, 2, true).entropy, std::log(3.0), 1e-6);
  EXPECT_NEAR(logprob(banned, 2, 2, row_stats(banned, 2, false)), -std::log(3.0), 1e-6);
}

// Σ_t g_t log p(id_t) + g_H entropy, with an id that is a target twice.
TEST(LogSoftmax, GradientAgreesWithDifferences) {
  for (const float inv_temperature : {1.0f, 1.6f}) {
    const auto row = random_row(29, 2, 3);
    const std::vector<TargetGradient> targets = {{4, 0.7f}, {28, -1.3f}, {4, 0.25f}};
    const double dentropy = -0.6;
    const Doubles wide(row.begin(), row.end());
    const auto wanted = numeric_gradient(
        [&](const Doubles& x) {
          const Softmax s = softmax(x, inv_temperature);
          double sum = dentropy * s.entropy;
          for (const auto& target : targets) sum += target.dlogprob * s.logprobs[target.id];
          return sum;
        },
        wide);
    std::vector<float> got = row;
    logits_backward(got, inv_temperature, row_stats(row, inv_temperature, true), targets, static_cast<float>(dentropy));
    expect_close(got, wanted, 3e-6, "dlogits");
  }
}

// The id whose stretch of the cumulated probabilities holds u; near a border either side is right.
TEST(InvertDistribution, AgreesWithTheCumulatedSum) {
  for (const int64_t size : {1, 5, 8, 100, 1024, 1025, 2500}) {
    const auto row = random_row(size, 2, 5);
    const float inv = 1.25f;
    const RowStats stats = row_stats(row, inv, false);
    const Doubles wide(row.begin(), row.end());
    const Softmax reference = softmax(wide, inv);
    Philox random(17);
    for (int trial = 0; trial < 2000; ++trial) {
      const double u = random.uniform();
      const int32_t id = invert_distribution(row, inv, stats, u);
      ASSERT_TRUE(id >= 0 && id < size);
      double below = 0;
      for (int32_t i = 0; i < id; ++i) below += std::exp(reference.logprobs[i]);
      ASSERT_LE(below, u + 1e-5) << size;
      ASSERT_GE(below + std::exp(reference.logprobs[id]), u - 1e-5) << size;
    }
  }
}

// Four equal weights: exact in floating point, so borders are exact too. A goal on a border belongs to the next id.
TEST(InvertDistribution, Borders) {
  const std::vector<float> row = {-10000, 3, 3, -10000, 3, 3, -10000};
  const RowStats stats = row_stats(row, 1, false);
  const auto at = [&](double u) { return invert_distribution(row, 1, stats, u); };
  const double tiny = 0x1p-54, almost = 1 - 0x1p-53;
  EXPECT_EQ(at(tiny), 1);
  EXPECT_EQ(at(0.25 - 0x1p-50), 1);
  EXPECT_EQ(at(0.25), 2);
  EXPECT_EQ(at(0.5 - 0x1p-50), 2);
  EXPECT_EQ(at(0.5), 4);
  EXPECT_EQ(at(0.75), 5);
  EXPECT_EQ(at(almost), 5);
  EXPECT_EQ(at(1.0), 5);  // whatever rounding brings, an id of no weight is never drawn
}

// The only weights lie far apart in blocks of the sum whose neighbours have none.
TEST(InvertDistribution, SkipsBlocksWithoutWeight) {
  std::vector<float> row(6000, -10000.0f);
  row[1500] = 0, row[4000] = 0;
  const RowStats stats = row_stats(row, 1, false);
  for (const auto& [u, id] : {std::pair{0x1p-54, 1500}, {0.499, 1500}, {0.5, 4000}, {1 - 0x1p-53, 4000}, {1.0, 4000}})
    EXPECT_EQ(invert_distribution(row, 1, stats, u), id) << u;
  for (const int32_t only : {0, 1023, 1024, 5999}) {
    std::ranges::fill(row, -10000.0f);
    row[only] = 5;
    for (const double u : {0x1p-54, 0.3, 1.0})
      EXPECT_EQ(invert_distribution(row, 1, row_stats(row, 1, false), u), only);
  }
}

}  // namespace
}  // namespace tandem::kernels
