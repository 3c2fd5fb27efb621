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

std::vector<double> advantages(const std::vector<Row>& rows, AdvantageEstimator estimator) {
  RolloutBatch batch;
  for (const Row& row : rows) {
    Sample sample;
    sample.group = row.group, sample.reward = row.reward, sample.response_length = row.length;
    sample.score = -77, sample.advantage = 99;  // neither may matter
    batch.push_back(sample);
  }
  estimate_advantages(batch, estimator);
  std::vector<double> out;
  for (const Sample& sample : batch) out.push_back(sample.advantage);
  return out;
}

std::vector<double> one_group(const std::vector<double>& rewards, AdvantageEstimator estimator) {
  std::vector<Row> rows;
  for (const double reward : rewards) rows.push_back({0, reward});
  return advantages(rows, estimator);
}

void expect_near(const std::vector<double>& got, const std::vector<double>& wanted, double tolerance = 1e-12) {
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], wanted[i], tolerance) << i;
}

const std::vector<double> kSevenAndNone = {.35, .35, .35, .35, .35, .35, .35, 0};

// Mean 0.30625, sum of squares 7 * 0.04375^2 + 0.30625^2 = 0.1071875, over 7: 0.0153125, root 0.12374369.
TEST(Grpo, SampleStandardDeviation) {
  std::vector<double> wanted(7, 0.353551);
  wanted.push_back(-2.474854);
  expect_near(one_group(kSevenAndNone, kGrpo), wanted, 1e-6);
  const double std = std::sqrt(0.1071875 / 7) + 1e-6;
  EXPECT_NEAR(one_group(kSevenAndNone, kGrpo)[7], -0.30625 / std, 1e-12);
}

TEST(Grpo, EqualRewardsGiveExactlyZero) {
  for (const auto estimator : {kGrpo, kDrGrpo, kGrpoPassK, kRloo, kOpo})
    for (const auto& [count, reward] : {std::pair{8, 0.1}, {7, 0.1}, {8, 0.35}, {3, -1e9}, {2, 0.0}})
      for (const double advantage : one_group(std::vector<double>(count, reward), estimator))
        EXPECT_EQ(advantage, 0.0) << count << " of " << reward;
}

// Rewards 1 and 1.00001 differ by 1e-5: std 7.0710678e-6, 5e-6 / (7.0710678e-6 + 1e-6) = 0.6195.
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
  for (const auto estimator : {kGrpo, kDrGrpo, kRloo}) expect_near(one_group({0.7}, estimator), {0.7});
  expect_near(one_group({0.7}, kOpo), {0});  // its baseline is itself
  EXPECT_THROW(one_group({0.7}, kGrpoPassK), ConfigError);
}

// 3, 1, 0, 0: mean 1, squares 4 + 0 + 1 + 1 = 6, std sqrt(2). The best is 2 above the second.
TEST(PassK, OnlyTheBest) {
  expect_near(one_group({1, 3, 0, 0}, kGrpoPassK), {0, 2 / (std::sqrt(2.0) + 1e-6), 0, 0});
  expect_near(one_group({3, 3, 0, 0}, kGrpoPassK), {0, 0, 0, 0});  // no gap between best and second
}

// R - mean of the others: 1 - 2/3, 2 - 1/3, 0 - 1, 0 - 1.
TEST(Rloo, LeavesItselfOut) { expect_near(one_group({1, 2, 0, 0}, kRloo), {1.0 / 3 - 0, 5.0 / 3, -1, -1}); }

// Baseline (1 * 10 + 0 * 30 + 2 * 20) / 60 = 50 / 60.
TEST(Opo, WeighsByLength) {
  expect_near(advantages({{0, 1, 10}, {0, 0, 30}, {0, 2, 20}}, kOpo), {1.0 / 6, -5.0 / 6, 7.0 / 6});
}

// Tokens: 1 x 3, 0 x 1. Mean 0.75, squares 3 * 0.0625 + 0.5625 = 0.75, sample variance 0.25.
TEST(ReinforcePlusPlus, WhitensOverTokens) {
  const double scale = 1 / std::sqrt(0.25 + 1e-8);
  expect_near(advantages({{0, 1, 3}, {1, 0, 1}}, kReinforcePlusPlus), {0.25 * scale, -0.75 * scale});
  expect_near(advantages({{0, 0.1, 3}, {1, 0.1, 1}, {1, 0.1, 6}}, kReinforcePlusPlus), {0, 0, 0}, 0);
  expect_near(advantages({{0, 0.1, 3}, {0, 0.1, 4}, {1, 0.7, 6}, {1, 0.7, 7}}, kReinforcePlusPlusBaseline),
              {0, 0, 0, 0}, 0);
  EXPECT_THROW(advantages({{0, 1, 1}}, kReinforcePlusPlus), DataError);
}

// Group 0: 1, 0 -> 0.5, -0.5. Group 1: 4, 4 -> 0. Lengths 1, 3, 2, 2: sum -1 over 8 tokens, mean -1/8; squares
// 0.625^2 + 3 * 0.375^2 + 4 * 0.125^2 = 0.390625 + 0.421875 + 0.0625 = 0.875, over 7: 0.125.
TEST(ReinforcePlusPlus, WithTheGroupsMeanAsBaseline) {
  const double scale = 1 / std::sqrt(0.125 + 1e-8);
  expect_near(advantages({{0, 1, 1}, {0, 0, 3}, {1, 4, 2}, {1, 4, 2}}, kReinforcePlusPlusBaseline),
              {0.625 * scale, -0.375 * scale, 0.125 * scale, 0.125 * scale});
}

TEST(AdvantageNames, AreVerls) {
  EXPECT_EQ(parse_advantage_estimator("grpo", true), kGrpo);
  EXPECT_EQ(parse_advantage_estimator("grpo", false), kDrGrpo);
  EXPECT_EQ(parse_advantage_estimator("grpo_passk", true), kGrpoPassK);
  EXPECT_EQ(parse_advantage_estimator("rloo", true), kRloo);
  EXPECT_EQ(parse_advantage_estimator("opo", true), kOpo);
  EXPECT_EQ(parse_advantage_estimator("reinforce_plus_plus", true), kReinforcePlusPlus);
  EXPECT_EQ(parse_advantage_estimator("reinforce_plus_plus_baseline", true), kReinforcePlusPlusBaseline);
  EXPECT_THROW(parse_advantage_estimator("gae2", true), ConfigError);
}

}  // namespace
}  // namespace tandem
