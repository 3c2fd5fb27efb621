// Random123's known answers for Philox4x32-10 (its kat_vectors file), and what is built upon it.
#include "base/rng.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

namespace tandem {
namespace {

TEST(Philox4x32, KnownAnswers) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}), (PhiloxCounter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const uint32_t ones = 0xffffffff;
  EXPECT_EQ(philox4x32({ones, ones, ones, ones}, {ones, ones}),
            (PhiloxCounter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxCounter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(UniformFor, DependsOnEveryPartOfItsKey) {
  const SampleKey key{1, 2, 3, 4};
  std::set<double> seen = {uniform_for(key, 5)};
  seen.insert(uniform_for({2, 2, 3, 4}, 5));
  seen.insert(uniform_for({1, 3, 3, 4}, 5));
  seen.insert(uniform_for({1, 2, 4, 4}, 5));
  seen.insert(uniform_for({1, 2, uint64_t{3} + (uint64_t{1} << 32), 4}, 5));
  seen.insert(uniform_for({1, 2, 3, 5}, 5));
  seen.insert(uniform_for(key, 6));
  EXPECT_EQ(seen.size(), 7u);
  EXPECT_EQ(uniform_for(key, 5), uniform_for({1, 2, 3, 4}, 5));
}

// Mean 1/2 and variance 1/12, each within five standard errors; every tenth part of the interval gets its share.
TEST(UniformFor, IsUniform) {
  const int count = 100000;
  double sum = 0, squares = 0;
  std::array<int, 10> parts{};
  for (int i = 0; i < count; ++i) {
    const double u =
        uniform_for({42, 0, static_cast<uint64_t>(i % 100), static_cast<uint32_t>(i / 100 % 10)}, i / 1000);
    ASSERT_TRUE(u > 0 && u < 1);
    sum += u, squares += u * u, ++parts[static_cast<int>(u * 10)];
  }
  EXPECT_NEAR(sum / count, 0.5, 5 * std::sqrt(1.0 / 12 / count));
  EXPECT_NEAR(squares / count, 1.0 / 3, 5 * std::sqrt(4.0 / 45 / count));
  for (const int part : parts) EXPECT_NEAR(part, count / 10, 5 * std::sqrt(count * 0.09));
}

TEST(Philox, BelowReachesEveryValueEvenly) {
  Philox random(7);
  std::array<int, 7> counts{};
  for (int i = 0; i < 70000; ++i) ++counts.at(random.below(7));
  for (const int count : counts) EXPECT_NEAR(count, 10000, 5 * std::sqrt(70000 * 6.0 / 49));
  for (int i = 0; i < 100; ++i) EXPECT_EQ(random.below(1), 0u);
}

TEST(Philox, StreamsAndSeedsDiffer) {
  EXPECT_EQ(Philox(1, 2).next(), Philox(1, 2).next());
  EXPECT_NE(Philox(1, 2).next(), Philox(1, 3).next());
  EXPECT_NE(Philox(1, 2).next(), Philox(2, 2).next());
  Philox random(9), fork = random;
  EXPECT_EQ(random.next(), fork.next());
}

TEST(Philox, NormalHasItsMoments) {
  Philox random(3);
  const int count = 100000;
  double sum = 0, squares = 0, fourth = 0;
  for (int i = 0; i < count; ++i) {
    const double x = random.normal();
    sum += x, squares += x * x, fourth += x * x * x * x;
  }
  EXPECT_NEAR(sum / count, 0, 5 / std::sqrt(count));
  EXPECT_NEAR(squares / count, 1, 5 * std::sqrt(2.0 / count));
  EXPECT_NEAR(fourth / count, 3, 5 * std::sqrt(96.0 / count));
}

}  // namespace
}  // namespace tandem
