// Token-level advantages by hand.
#include "train/token_advantage.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error.h"

namespace tandem {
namespace {

using enum TokenEstimator;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

TokenRow row(std::vector<double> rewards, std::vector<uint8_t> mask, std::vector<float> values = {}) {
  TokenRow out;
  out.rewards = std::move(rewards), out.mask = std::move(mask), out.values = std::move(values);
  return out;
}

void expect_near(const std::vector<double>& got, const std::vector<double>& wanted, double tolerance = 1e-6) {
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], wanted[i], tolerance) << i;
}

// The advantages of one row as they are before whitening: returns - values.
std::vector<double> plain(const TokenRow& row) {
  std::vector<double> out;
  for (size_t t = 0; t < row.mask.size(); ++t) out.push_back(row.mask[t] != 0 ? row.returns[t] - row.values[t] : 0);
  return out;
}

// ADV-2. Row 1: d1 = 1 - 0 = 1, d0 = 0, A0 = 0.95. Row 2: d2 = 1 - .6 = .4; d1 = .6 - .4 = .2, A1 = .2 + .95 * .4 =
// .58; d0 = .4 - .2 = .2, A0 = .2 + .95 * .58 = .751. Returns are A + V. What the critic says of masked tokens, NaN
// included, is not looked at.
TEST(Gae, MaskedValuesDoNotLeak) {
  for (const float junk : {100.0F, kNan}) {
    std::vector<TokenRow> rows = {row({0, 1, 0}, {1, 1, 0}, {0, 0, junk}),
                                  row({0, 0, 1, 0, 0}, {1, 1, 1, 0, 0}, {.2F, .4F, .6F, junk, -junk})};
    estimate_token_advantages(rows, {kGae, 1, 0.95});
    expect_near(rows[0].returns, {0.95, 1, 0});
    expect_near(plain(rows[0]), {0.95, 1, 0});
    expect_near(rows[1].returns, {0.951, 0.98, 1, 0, 0});
    expect_near(plain(rows[1]), {0.751, 0.58, 0.4, 0, 0});
    // Whitened over the five trained tokens: mean 3.681 / 5 = .7362.
    double sum = 0, squares = 0;
    for (const TokenRow& r : rows)
      for (size_t t = 0; t < r.mask.size(); ++t) {
        sum += r.advantages[t], squares += r.advantages[t] * r.advantages[t];
        EXPECT_TRUE(r.mask[t] != 0 || r.advantages[t] == 0);
      }
    EXPECT_NEAR(sum, 0, 1e-12);
    EXPECT_NEAR(squares / 4, 1, 1e-6);
  }
}

// Whitening of 0.95 and 1: mean 0.975, deviations -+0.025, sample variance 2 * 0.025^2 = 0.00125.
TEST(Gae, WhitensByTheSampleVariance) {
  std::vector<TokenRow> rows = {row({0, 1}, {1, 1}, {0, 0})};
  estimate_token_advantages(rows, {kGae, 1, 0.95});
  const double scale = 1 / std::sqrt(0.00125 + 1e-8);
  expect_near(rows[0].advantages, {-0.025 * scale, 0.025 * scale}, 1e-12);
}

// A tool wrote token 1: token 0's successor is token 2. gamma = 0.5, lambda = 1: d2 = 1 - 0.5 = 0.5; d0 = 0.5 * 0.5 -
// 0.25 = 0, A0 = 0 + 0.5 * 0.5 = 0.25.
TEST(Gae, StepsOverToolTokens) {
  std::vector<TokenRow> rows = {row({0, 9, 1}, {1, 0, 1}, {.25F, kNan, .5F})};
  estimate_token_advantages(rows, {kGae, 0.5, 1});
  expect_near(plain(rows[0]), {0.25, 0, 0.5}, 1e-12);
  expect_near(rows[0].returns, {0.5, 0, 1}, 1e-12);
  EXPECT_EQ(rows[0].advantages[1], 0);
}

TEST(Gae, DegenerateBatches) {
  std::vector<TokenRow> masked = {row({5, 5}, {0, 0}, {kNan, kNan})};
  estimate_token_advantages(masked, {kGae, 1, 1});
  expect_near(masked[0].advantages, {0, 0}, 0);
  std::vector<TokenRow> equal = {row({.1, 0}, {1, 1}, {0, .1F}), row({0}, {0}, {0})};
  equal[0].rewards = {0, 0.5}, equal[0].values = {0, 0};
  estimate_token_advantages(equal, {kGae, 1, 1});  // both tokens 0.5: no spread
  expect_near(equal[0].advantages, {0, 0}, 0);
  std::vector<TokenRow> single = {row({1}, {1}, {0})};
  EXPECT_THROW(estimate_token_advantages(single, {kGae, 1, 1}), DataError);
}

// gamma = 0.5: returns 0.25, 0.5, 1 (a KL penalty of -0.5 at the first token: -0.25) and 2. With it: -0.25, 0.5, 1, 2:
// mean 3.25 / 4 = 0.8125; deviations -1.0625, -0.3125, 0.1875, 1.1875; squares 1.12890625 + 0.09765625 + 0.03515625 +
// 1.41015625 = 2.671875, over 3: 0.890625.
TEST(ReinforcePlusPlus, WhitensDiscountedReturns) {
  std::vector<TokenRow> rows = {row({-0.5, 0, 7, 1}, {1, 1, 0, 1}), row({2}, {1})};
  estimate_token_advantages(rows, {kReinforcePlusPlus, 0.5, 1});
  const double scale = 1 / std::sqrt(0.890625 + 1e-8);
  expect_near(rows[0].returns, {-0.25, 0.5, 0, 1}, 1e-12);
  expect_near(rows[0].advantages, {-1.0625 * scale, -0.3125 * scale, 0, 0.1875 * scale}, 1e-12);
  expect_near(rows[1].advantages, {1.1875 * scale}, 1e-12);
}

// Every token has its sample's reward: 1 x 3, 0 x 1. Mean 0.75, squares 3 * 0.0625 + 0.5625 = 0.75, variance 0.25.
TEST(ReinforcePlusPlus, UndiscountedIsTheRewardAtEveryToken) {
  std::vector<TokenRow> rows = {row({0, 0, 1}, {1, 1, 1}), row({0}, {1}), row({5, 5}, {0, 0})};
  estimate_token_advantages(rows, {kReinforcePlusPlus, 1, 1});
  expect_near(rows[2].advantages, {0, 0}, 0);  // masked as a whole: in no mean either
  const double scale = 1 / std::sqrt(0.25 + 1e-8);
  expect_near(rows[0].advantages, {0.25 * scale, 0.25 * scale, 0.25 * scale}, 1e-12);
  expect_near(rows[1].advantages, {-0.75 * scale}, 1e-12);
}

// Returns 1.3, 1, (masked), 1 less the greedy response's 0.75.
TEST(Remax, SubtractsTheGreedyResponse) {
  std::vector<TokenRow> rows = {row({0.3, 0, 9, 1}, {1, 1, 0, 1}), row({5}, {0})};
  rows[0].baseline = rows[1].baseline = 0.75;
  estimate_token_advantages(rows, {kRemax, 1, 1});
  expect_near(rows[0].advantages, {0.55, 0.25, 0, 0.25}, 1e-12);
  expect_near(rows[1].advantages, {0}, 0);
}

TokenRow otb(double reward, std::vector<float> sizes, uint32_t group = 0) {
  // p = 0.5 makes 1 - 2 p = 0, so a token's weight is its sum of squared probabilities.
  TokenRow out;
  out.rewards.assign(sizes.size(), 0);
  if (!sizes.empty()) out.rewards.back() = reward;
  out.mask.assign(sizes.size(), 1);
  out.logprobs.assign(sizes.size(), std::log(0.5F));
  out.sum_squared_probs = std::move(sizes), out.group = group;
  return out;
}

// Group: reward 1 with sizes 0.5, 0.5 and reward 4 with sizes 0.25, 0.25, 0.25. W: .5, 1 and .25, .5, .75.
// t = 0: (1 * .5 + 4 * .25) / .75 = 2; t = 1: (1 * 1 + 4 * .5) / 1.5 = 2; t = 2: behind the second-longest, so 0.
TEST(OptimalTokenBaseline, WeighsByTheScoreFunction) {
  std::vector<TokenRow> rows = {otb(1, {.5F, .5F}), otb(4, {.25F, .25F, .25F}), otb(3, {.5F}, 1)};
  estimate_token_advantages(rows, {kOptimalTokenBaseline, 1, 1});
  expect_near(rows[0].advantages, {-1, -1});
  expect_near(rows[1].advantages, {2, 2, 4});
  expect_near(rows[2].advantages, {3});  // a group of one keeps its return
}

// Three samples: lengths 1, 2, 2. t = 0: (1 * .5 + 2 * .25 + 6 * .5) / 1.25 = 3.2. At t = 1 two are left, with W .5
// (= .25 + .25) and 1 (= .5 + .5): (2 * .5 + 6 * 1) / 1.5 = 14 / 3.
TEST(OptimalTokenBaseline, EndedResponsesDoNotCount) {
  std::vector<TokenRow> rows = {otb(1, {.5F}), otb(2, {.25F, .25F}), otb(6, {.5F, .5F})};
  estimate_token_advantages(rows, {kOptimalTokenBaseline, 1, 1});
  expect_near(rows[0].advantages, {1 - 3.2});
  expect_near(rows[1].advantages, {2 - 3.2, 2 - 14.0 / 3});
  expect_near(rows[2].advantages, {6 - 3.2, 6 - 14.0 / 3});
  // An importance weight of 2 makes a token's size four times as large: (1 * 2 + 2 * .25 + 6 * .5) / 2.75 = 2.
  rows[0].importance_weights = {2};
  estimate_token_advantages(rows, {kOptimalTokenBaseline, 1, 1});
  EXPECT_NEAR(rows[0].advantages[0], -1, 1e-6);
}

TEST(OptimalTokenBaseline, EqualReturnsAndMasks) {
  std::vector<TokenRow> equal = {otb(0.1, {.3F, .1F}), otb(0.1, {.7F, .2F}), otb(0.1, {.9F, .3F})};
  estimate_token_advantages(equal, {kOptimalTokenBaseline, 1, 1});
  for (const TokenRow& r : equal) expect_near(r.advantages, {0, 0}, 0);
  std::vector<TokenRow> masked = {otb(1, {.5F, .5F}), otb(9, {.5F, .5F})};
  masked[1].mask = {0, 0};  // as if it were not there: the other one is a group of one
  estimate_token_advantages(masked, {kOptimalTokenBaseline, 1, 1});
  expect_near(masked[0].advantages, {1, 1});
  expect_near(masked[1].advantages, {0, 0}, 0);
}

// A tool wrote token 1 of the first response. W: .5, -, 1 and .25, .5, .75. t = 0: (1 * .5 + 4 * .25) / .75 = 2; at t =
// 1 the other is alone and its own baseline; t = 2: (1 * 1 + 4 * .75) / 1.75 = 16 / 7.
TEST(OptimalTokenBaseline, StepsOverToolTokens) {
  std::vector<TokenRow> rows = {otb(1, {.5F, .9F, .5F}), otb(4, {.25F, .25F, .25F})};
  rows[0].mask[1] = 0, rows[0].rewards[1] = 7, rows[0].logprobs[1] = kNan;
  estimate_token_advantages(rows, {kOptimalTokenBaseline, 1, 1});
  expect_near(rows[0].advantages, {-1, 0, 1 - 16.0 / 7});
  expect_near(rows[1].advantages, {2, 0, 4 - 16.0 / 7});
}

TEST(TokenEstimatorNames, AreVerls) {
  EXPECT_EQ(find_token_estimator("gae"), kGae);
  EXPECT_EQ(find_token_estimator("reinforce_plus_plus"), kReinforcePlusPlus);
  EXPECT_EQ(find_token_estimator("remax"), kRemax);
  EXPECT_EQ(find_token_estimator("optimal_token_baseline"), kOptimalTokenBaseline);
  EXPECT_EQ(find_token_estimator("grpo"), std::nullopt);
}

}  // namespace
}  // namespace tandem
