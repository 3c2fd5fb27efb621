#include "parallel/balance.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/rng.h"
#include "parallel/assignment.h"

namespace tandem {
namespace {

TEST(Balance, ByHand) {
  // By hand: 8−7=1, 6−5=1, 4−1=3, 3−1=2, so the parts are 16 and 14 (the best there is, 15 and 15, needs a search).
  const std::vector<int64_t> costs{8, 7, 6, 5, 4};
  const auto parts = balanced_parts(costs, 2);
  EXPECT_NEAR(imbalance(costs, parts, 2), 2.0 * 16 / 30 - 1, 1e-12);
}

TEST(Balance, LognormalLengthsWithinThreePercent) {
  for (const int ranks : {2, 4, 8}) {
    for (uint64_t seed = 0; seed < 20; ++seed) {
      Philox random(seed);
      std::vector<int64_t> lengths, costs;
      for (int i = 0; i < 256; ++i) {
        lengths.push_back(std::clamp<int64_t>(std::lround(std::exp(6.0 + random.normal())), 8, 8192));
        costs.push_back(sequence_cost(lengths.back(), 4096));
      }
      EXPECT_LE(imbalance(costs, balanced_parts(costs, ranks), ranks), 0.03) << ranks << " ranks, seed " << seed;
      EXPECT_LE(imbalance(lengths, balanced_parts(lengths, ranks), ranks), 0.03) << ranks << " ranks, seed " << seed;
    }
  }
}

TEST(Balance, FewerItemsThanParts) {
  const std::vector<int64_t> costs{5, 3};
  const auto parts = balanced_parts(costs, 4);
  EXPECT_NE(parts[0], parts[1]);
  EXPECT_TRUE(balanced_parts({}, 4).empty());
  EXPECT_EQ(balanced_parts(costs, 1), (std::vector<int>{0, 0}));
}

TEST(Balance, CountsAttention) {
  EXPECT_EQ(sequence_cost(1000, 0), 1000);
  EXPECT_EQ(sequence_cost(1000, 1000), 2000);
  EXPECT_EQ(sequence_cost(2000, 1000), 6000);
}

TEST(Assignment, MatchesAllPermutations) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    Philox random(seed);
    const size_t n = 1 + random.below(6);
    std::vector<std::vector<int64_t>> value(n, std::vector<int64_t>(n));
    for (auto& row : value)
      for (int64_t& v : row) v = static_cast<int64_t>(random.below(100));
    std::vector<int> order(n);
    for (size_t i = 0; i < n; ++i) order[i] = static_cast<int>(i);
    int64_t best = -1;
    do {
      int64_t sum = 0;
      for (size_t i = 0; i < n; ++i) sum += value[i][order[i]];
      best = std::max(best, sum);
    } while (std::next_permutation(order.begin(), order.end()));
    int64_t sum = 0;
    std::vector<int> taken(n, 0);
    const auto found = best_assignment(value);
    for (size_t i = 0; i < n; ++i) sum += value[i][found[i]], ++taken[found[i]];
    EXPECT_EQ(sum, best);
    EXPECT_EQ(std::count(taken.begin(), taken.end(), 1), static_cast<int64_t>(n));
  }
}

}  // namespace
}  // namespace tandem
