// Advantages by hand.
#include "programs/advantage.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error.h"

namespace tandem {
namespace {

using enum AdvantageEstimator;

struct Row {
  uint32_t group;
  double reward;
  uint32_t length = 4;
};

// Dr.GRPO's is grpo without the standard deviation.
const AdvantageOptions kDrGrpo{.estimator = kGrpo, .by_std = false, .gdpo_keys = {}, .gdpo_weights = {}};
AdvantageOptions options_of(AdvantageEstimator estimator) { return {.estimator = estimator}; }
AdvantageOptions options_of(const AdvantageOptions& options) { return options; }

ScoredBatch batch_of(const std::vector<Row>& rows) {
  ScoredBatch batch;
  for (const Row& row : rows) {
    Sample sample;
    sample.group = row.group, sample.reward = row.reward, sample.trained_length = row.length;
    sample.response_length = row.length + 3;    // a tool's tokens do not count
    sample.score = -77, sample.advantage = 99;  // neither may matter
    batch.samples.push_back(sample);
  }
  return batch;
}

template <class Options>
std::vector<double> advantages(const std::vector<Row>& rows, const Options& options) {
  ScoredBatch batch = batch_of(rows);
  estimate_advantages(batch, options_of(options));
  std::vector<double> out;
  for (const Sample& sample : batch.samples) out.push_back(sample.advantage);
  return out;
}

template <class Options>
std::vector<double> one_group(const std::vector<double>& rewards, const Options& options) {
  std::vector<Row> rows;
  for (const double reward : rewards) rows.push_back({0, reward});
  return advantages(rows, options);
}

void expect_near(const std::vector<double>& got, const std::vector<double>& wanted, double tolerance = 1e-12) {
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], wanted[i], tolerance) << i;
}

const std::vector<double> kSevenAndNone = {.35, .35, .35, .35, .35, .35, .35, 0};

// ADV-1 (i). Mean 0.30625, sum of squares 7 * 0.04375^2 + 0.30625^2 = 0.1071875, over 7: 0.0153125, root 0.12374369.
TEST(Grpo, SampleStandardDeviation) {
  std::vector<double> wanted(7, 0.353551);
  wanted.push_back(-2.474854);
  expect_near(one_group(kSevenAndNone, kGrpo), wanted, 1e-6);
  const double std = std::sqrt(0.1071875 / 7) + 1e-6;
  EXPECT_NEAR(one_group(kSevenAndNone, kGrpo)[7], -0.30625 / std, 1e-12);
}

// ADV-1 (ii) to (iv).
TEST(Grpo, EqualRewardsGiveExactlyZero) {
  for (const auto estimator : {kGrpo, kGrpoPassK, kRloo, kOpo, kGpg})
    for (const auto& [count, reward] : {std::pair{8, 0.1}, {7, 0.1}, {8, 0.35}, {3, -1e9}, {2, 0.0}})
      for (const double advantage : one_group(std::vector<double>(count, reward), estimator))
        EXPECT_EQ(advantage, 0.0) << count << " of " << reward;
}

// ADV-1 (v). Rewards 1 and 1.00001 differ by 1e-5: std 7.0710678e-6, 5e-6 / (7.0710678e-6 + 1e-6) = 0.6195.
TEST(Grpo, SmallDifferences) { expect_near(one_group({1.0, 1.00001}, kGrpo), {-0.619493, 0.619493}, 1e-5); }

TEST(Grpo, WithoutTheStandardDeviation) {
  expect_near(one_group({1, 0, 0, 1, 0.5}, kDrGrpo), {0.5, -0.5, -0.5, 0.5, 0});
  std::vector<double> wanted(7, 0.04375);
  wanted.push_back(-0.30625);
  expect_near(one_group(kSevenAndNone, kDrGrpo), wanted);
}

// Three valid samples of rewards 1, 0, 0: mean 1/3, std 0.577350.
TEST(Grpo, Three) { expect_near(one_group({1, 0, 0}, kGrpo), {1.154699, -0.577349, -0.577349}, 1e-6); }

TEST(Grpo, GroupsDoNotMix) {
  const std::vector<Row> rows = {{0, 1}, {0, 0}, {1, 5}, {1, 5}, {2, -3}, {0, 7}};
  // {1, 0}, {5, 5}, {-3}, and a new group although its number came before: neighbours make a group
  expect_near(advantages(rows, kDrGrpo), {0.5, -0.5, 0, 0, -3, 7});
}

TEST(Grpo, AGroupOfOneGetsItsReward) {
  for (const auto estimator : {kGrpo, kRloo, kGpg}) expect_near(one_group({0.7}, estimator), {0.7});
  expect_near(one_group({0.7}, kDrGrpo), {0.7});
  expect_near(one_group({0.7}, kOpo), {0});  // its baseline is itself
  EXPECT_THROW(one_group({0.7}, kGrpoPassK), ConfigError);
}

// 3, 1, 0, 0: mean 1, squares 4 + 0 + 1 + 1 = 6, std sqrt(2). The best is 2 above the second.
TEST(PassK, OnlyTheBest) {
  expect_near(one_group({1, 3, 0, 0}, kGrpoPassK), {0, 2 / (std::sqrt(2.0) + 1e-6), 0, 0});
  expect_near(one_group({3, 3, 0, 0}, kGrpoPassK), {0, 0, 0, 0});  // no gap between best and second
  expect_near(one_group({1, 3, 0, 0}, AdvantageOptions{.estimator = kGrpoPassK, .by_std = false}), {0, 2, 0, 0});
}

// R - mean of the others: 1 - 2/3, 2 - 1/3, 0 - 1, 0 - 1.
TEST(Rloo, LeavesItselfOut) { expect_near(one_group({1, 2, 0, 0}, kRloo), {1.0 / 3 - 0, 5.0 / 3, -1, -1}); }

// Baseline (1 * 10 + 0 * 30 + 2 * 20) / 60 = 50 / 60.
TEST(Opo, WeighsByLength) {
  expect_near(advantages({{0, 1, 10}, {0, 0, 30}, {0, 2, 20}}, kOpo), {1.0 / 6, -5.0 / 6, 7.0 / 6});
}

// A response whose tokens are all masked has no weight: baseline (1 * 10 + 2 * 30) / 40 = 1.75, not of its own 5.
TEST(Opo, AllMaskedRowsWeighNothing) {
  expect_near(advantages({{0, 1, 10}, {0, 5, 0}, {0, 2, 30}}, kOpo), {-0.75, 0, 0.25});
  expect_near(advantages({{0, 1, 0}, {0, 5, 0}}, kOpo), {0, 0});
}

// Four samples, three of them with a reward: alpha = 4 / 3. Means 1 and 0.5.
TEST(Gpg, ScalesByTheShareThatScores) {
  expect_near(advantages({{0, 2}, {0, 0}, {1, 0.75}, {1, 0.25}}, kGpg), {4.0 / 3, -4.0 / 3, 1.0 / 3, -1.0 / 3});
  expect_near(one_group({0, 0}, kGpg), {0, 0});
}

// Key a: 1, 0 -> grpo +-x with x = 0.5 / (1/sqrt(2) + 1e-6) = 0.707106; key b (weight 2): 0, 4 -> -+y with
// y = 2 / (4/sqrt(2) + 1e-6) = 0.7071065. Sums: x - 2y, 2y - x. Lengths 1 and 3: mean (2y - x) / 2 = m, deviations -3m
// and m, squares 9 m^2 + 3 m^2 = 12 m^2, over 3: 4 m^2. Whitened: -1.5 and 0.5 (to the eps of 1e-8 beside 4 m^2 = 0.5).
TEST(Gdpo, AddsNormalisedKeysAndWhitens) {
  ScoredBatch batch = batch_of({{0, 7, 1}, {0, 8, 3}});
  batch.extras = {{{"a", 1}, {"b", 0}}, {{"b", 4}, {"a", 0}}};
  AdvantageOptions options{.estimator = kGdpo, .gdpo_keys = {"a", "b"}, .gdpo_weights = {1, 2}};
  estimate_advantages(batch, options);
  EXPECT_NEAR(batch.samples[0].advantage, -1.5, 1e-7);
  EXPECT_NEAR(batch.samples[1].advantage, 0.5, 1e-7);
  EXPECT_EQ(batch.samples[0].reward, 7);  // untouched
  options.gdpo_keys = {"a", "c"};
  EXPECT_THROW(estimate_advantages(batch, options), DataError);
  options = {.estimator = kGdpo, .gdpo_keys = {"score"}};
  for (Sample& sample : batch.samples) sample.score = 0.25;
  estimate_advantages(batch, options);
  EXPECT_EQ(batch.samples[0].advantage, 0);
}

TEST(ReinforcePlusPlus, EqualAndTooFew) {
  expect_near(advantages({{0, 0.1, 3}, {0, 0.1, 4}, {1, 0.7, 6}, {1, 0.7, 7}}, kReinforcePlusPlusBaseline),
              {0, 0, 0, 0}, 0);
  EXPECT_THROW(advantages({{0, 1, 1}}, kReinforcePlusPlusBaseline), DataError);
  expect_near(advantages({{0, 1, 0}, {0, 0, 0}}, kReinforcePlusPlusBaseline), {0, 0}, 0);  // all masked
}

// Group 0: 1, 0 -> 0.5, -0.5. Group 1: 4, 4 -> 0. Lengths 1, 3, 2, 2: sum -1 over 8 tokens, mean -1/8; squares
// 0.625^2 + 3 * 0.375^2 + 4 * 0.125^2 = 0.390625 + 0.421875 + 0.0625 = 0.875, over 7: 0.125.
TEST(ReinforcePlusPlus, WithTheGroupsMeanAsBaseline) {
  const double scale = 1 / std::sqrt(0.125 + 1e-8);
  expect_near(advantages({{0, 1, 1}, {0, 0, 3}, {1, 4, 2}, {1, 4, 2}}, kReinforcePlusPlusBaseline),
              {0.625 * scale, -0.375 * scale, 0.125 * scale, 0.125 * scale});
}

// Rewards 1, 0 and 5, of which no token is trained: it gets 0, but is one of its group, as in verl. Mean 2, std
// sqrt((1 + 4 + 9) / 2) = sqrt(7); the others' mean of 1 is 2.5, of 0 is 3; two of three score: alpha = 3 / 2. The best
// is the masked one, so nobody is left to gain by pass@k. Whitened over the 2 + 2 tokens of -1 and -2: mean -1.5,
// variance 4 * 0.25 / 3.
TEST(AllMaskedRows, GetNothingAndCountInTheirGroup) {
  const std::vector<Row> rows = {{0, 1, 2}, {0, 0, 2}, {0, 5, 0}};
  const double std = std::sqrt(7.0) + 1e-6, white = 0.5 / std::sqrt(1.0 / 3 + 1e-8);
  expect_near(advantages(rows, kGrpo), {-1 / std, -2 / std, 0});
  expect_near(advantages(rows, kDrGrpo), {-1, -2, 0});
  expect_near(advantages(rows, kRloo), {-1.5, -3, 0});
  expect_near(advantages(rows, kGpg), {-1.5, -3, 0});
  expect_near(advantages(rows, kGrpoPassK), {0, 0, 0});
  expect_near(advantages(rows, kReinforcePlusPlusBaseline), {white, -white, 0});
  // Whitening of tokens that are all alike gives exactly 0, whatever a masked row has.
  expect_near(advantages({{0, 1, 2}, {0, 1, 2}, {0, 5, 0}}, kReinforcePlusPlusBaseline), {0, 0, 0}, 0);
  ScoredBatch batch = batch_of(rows);
  batch.extras = {{{"a", 1}}, {{"a", 0}}, {{"a", 5}}};
  estimate_advantages(batch, {.estimator = kGdpo, .gdpo_keys = {"a"}});
  EXPECT_NEAR(batch.samples[0].advantage, -batch.samples[1].advantage, 1e-12);
  EXPECT_EQ(batch.samples[2].advantage, 0);
}

TEST(AdvantageNames, AreVerls) {
  EXPECT_EQ(find_advantage_estimator("grpo"), kGrpo);
  EXPECT_EQ(find_advantage_estimator("grpo_passk"), kGrpoPassK);
  EXPECT_EQ(find_advantage_estimator("rloo"), kRloo);
  EXPECT_EQ(find_advantage_estimator("opo"), kOpo);
  EXPECT_EQ(find_advantage_estimator("gpg"), kGpg);
  EXPECT_EQ(find_advantage_estimator("gdpo"), kGdpo);
  EXPECT_EQ(find_advantage_estimator("reinforce_plus_plus_baseline"), kReinforcePlusPlusBaseline);
  EXPECT_EQ(find_advantage_estimator("gae"), std::nullopt);  // token by token: train/token_advantage.h
}

}  // namespace
}  // namespace tandem
