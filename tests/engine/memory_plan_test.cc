// How a GPU's memory is shared out, on sums that fit a head: 2 bytes of weight, 12 of masters and moments and 4 of
// gradient for each parameter.
#include "engine/memory_plan.h"

#include <gtest/gtest.h>

#include <string>

#include "base/error.h"

namespace tandem {
namespace {

constexpr int64_t kGib = int64_t{1} << 30, kMib = int64_t{1} << 20;

std::string refusal(int64_t parameters, int64_t device, double utilization, int64_t workspace) {
  try {
    plan_memory(parameters, device, utilization, workspace);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

// 80 x 0.5 = 40 GiB; 14 x 2^30 + 1 = 15 GiB stay in rollout, 4 more in the update.
TEST(MemoryPlan, GivesTheCacheWhatStaysAndTheUpdateFourBytesLess) {
  const MemoryPlan plan = plan_memory(kGib, 80 * kGib, 0.5, kGib);
  EXPECT_EQ(plan.kv_cache_bytes, 25 * kGib);
  EXPECT_EQ(plan.activation_bytes, 21 * kGib);
}

// 18 GiB + 256 MiB is the least that a model of 2^30 parameters trains in: the activations need 256 MiB to be of use.
TEST(MemoryPlan, TheActivationsAreTheFirstToLackRoom) {
  const MemoryPlan least = plan_memory(kGib, 18 * kGib + 256 * kMib, 1, 0);
  EXPECT_EQ(least.activation_bytes, 256 * kMib);
  EXPECT_EQ(least.kv_cache_bytes, 4 * kGib + 256 * kMib);
  EXPECT_NE(refusal(kGib, 18 * kGib + 256 * kMib - 1, 1, 0), "");
  EXPECT_EQ(refusal(kGib, 18 * kGib + 257 * kMib, 1, kMib), "");
  EXPECT_NE(refusal(kGib, 18 * kGib + 257 * kMib, 1, kMib + 1), "");
}

// 2 + 12 + 4 + 1 = 19 GiB are wanted and half of 24 = 12 GiB given.
TEST(MemoryPlan, TheRefusalShowsTheSumAndTheKey) {
  const std::string text = refusal(kGib, 24 * kGib, 0.5, kGib);
  EXPECT_EQ(text,
            "the model does not fit: weights 2.0 + masters and moments 12.0 + gradients 4.0 + workspace 1.0 = 19.0 "
            "GiB, and 12.0 GiB may be used (actor_rollout_ref.rollout.gpu_memory_utilization=0.50 of 24.0); raise it, "
            "or take a smaller model");
}

// A frozen model of 2^30 parameters adds its 2 GiB of weights and nothing else.
TEST(MemoryPlan, AModelBesideItCostsItsWeights) {
  const MemoryPlan plan = plan_memory(kGib, 80 * kGib, 0.5, kGib, kGib);
  EXPECT_EQ(plan.kv_cache_bytes, 23 * kGib);
  EXPECT_EQ(plan.activation_bytes, 19 * kGib);
}

// Two ranks; a quarter of the parameters outside the blocks, a sixteenth in a block. Weights 2 + 0.25 for two blocks,
// half of all masters, moments and weights 7, gradients (1/2 + 1/4 + 2/16 + 1/4) x 4 = 4.5, workspace 1: 14.75 GiB. The
// update lets three quarters of the weights go, 1.5 GiB.
TEST(MemoryPlan, RanksKeepPartsOfTheTrainingState) {
  const MemoryPlan plan = plan_memory(kGib, 80 * kGib, 0.5, kGib, 0, kUtilizationKey, Spread{2, kGib / 4, kGib / 16});
  EXPECT_EQ(plan.kv_cache_bytes, 40 * kGib - 14 * kGib - 768 * kMib);
  EXPECT_EQ(plan.activation_bytes, 40 * kGib - 13 * kGib - 256 * kMib);
}

TEST(MemoryPlan, WithoutAKeyThereIsNothingToRaise) {
  try {
    plan_memory(kGib, 24 * kGib, 0.5, kGib, kGib, "");
    FAIL() << "21 GiB do not fit in 12";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("weights 4.0"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("12.0 GiB may be used (0.50 of 24.0); take a smaller model"),
              std::string::npos)
        << error.what();
  }
}

// 8 billion parameters on 80 GB: 18 x 8e9 = 144e9 bytes. No product may wrap around.
TEST(MemoryPlan, CountsLargeModelsWithoutOverflow) {
  EXPECT_NE(refusal(8'000'000'000, 80'000'000'000, 0.9, 0), "");
  const MemoryPlan plan = plan_memory(8'000'000'000, 200'000'000'000, 1, 0);
  EXPECT_EQ(plan.kv_cache_bytes, 88'000'000'000);
  EXPECT_EQ(plan.activation_bytes, 56'000'000'000);
}

}  // namespace
}  // namespace tandem
