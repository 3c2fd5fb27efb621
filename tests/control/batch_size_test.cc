// How many prompts a step takes, by made-up rates.
#include "control/batch_size.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

constexpr BatchSizeOptions kOptions{.full = 512, .least = 256, .step = 128, .low = 0.6, .high = 0.85, .patience = 2};

TEST(BatchSize, StepsDownWhereRolloutIsSlowAndRecovers) {
  BatchSize batch(kOptions);
  for (int i = 0; i < 5; ++i) batch.observe(1000);
  EXPECT_EQ(batch.size(), 512);
  batch.observe(400);
  EXPECT_EQ(batch.size(), 512) << "one slow step may be chance";
  EXPECT_NEAR(batch.utilization(), 0.4, 0.01);
  batch.observe(400);
  EXPECT_EQ(batch.size(), 384);
  // As slow as before: of 384 at least 750 could be had.
  batch.observe(400);
  EXPECT_NEAR(batch.utilization(), 400 / 750.0, 0.03);
  batch.observe(400);
  EXPECT_EQ(batch.size(), 256);
  for (int i = 0; i < 4; ++i) batch.observe(100);
  EXPECT_EQ(batch.size(), 256) << "never below the least";
  batch.observe(700);
  batch.observe(700);
  EXPECT_EQ(batch.size(), 384);
  batch.observe(1000);
  batch.observe(1000);
  EXPECT_EQ(batch.size(), 512);
  for (int i = 0; i < 4; ++i) batch.observe(2000);
  EXPECT_EQ(batch.size(), 512) << "never above all";
}

TEST(BatchSize, StaysBetweenTheBounds) {
  BatchSize batch(kOptions);
  batch.observe(1000);
  for (int i = 0; i < 20; ++i) batch.observe(700);
  EXPECT_EQ(batch.size(), 512) << "70 % is neither slow nor quick, until the best rate has faded";
}

TEST(BatchSize, ASlowStepBetweenQuickOnesChangesNothing) {
  BatchSize batch(kOptions);
  for (int i = 0; i < 12; ++i) batch.observe(i % 2 == 0 ? 1000 : 300);
  EXPECT_EQ(batch.size(), 512);
}

TEST(BatchSize, ALuckyStepFades) {
  BatchSize batch(kOptions);
  batch.observe(10000);
  batch.observe(1000);
  for (int i = 0; i < 300 && batch.utilization() < 0.9; ++i) batch.observe(1000);
  EXPECT_GE(batch.utilization(), 0.9);
}

TEST(BatchSize, GoesOnFromASize) {
  BatchSize batch(kOptions);
  batch.restore(384);
  EXPECT_EQ(batch.size(), 384);
  batch.observe(500);  // the only rate there is
  EXPECT_EQ(batch.utilization(), 1);
  batch.observe(500);
  EXPECT_EQ(batch.size(), 512);
  batch.restore(100);
  EXPECT_EQ(batch.size(), 256);
}

TEST(BatchSize, NoRateIsNoStep) {
  BatchSize batch(kOptions);
  batch.observe(1000);
  for (int i = 0; i < 5; ++i) batch.observe(0);
  EXPECT_EQ(batch.size(), 512);
}

}  // namespace
}  // namespace tandem
