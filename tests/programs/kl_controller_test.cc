#include "programs/kl_controller.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

// KL a token: 3 / 10, 1 / 2, and nothing of a response without trained tokens: mean 0.8 / 3.
RolloutBatch batch() {
  RolloutBatch samples(3);
  samples[0].kl = 3, samples[0].trained_length = 10;
  samples[1].kl = 1, samples[1].trained_length = 2;
  samples[2].kl = 0, samples[2].trained_length = 0;
  return samples;
}

TEST(KlController, AFixedOneStays) {
  KlController controller({.enable = true, .kl_coef = 0.25});
  const Metrics metrics = controller.observe(batch());
  EXPECT_NEAR(metrics.get("actor/reward_kl_penalty").value(), 0.8 / 3, 1e-15);
  EXPECT_EQ(metrics.get("actor/reward_kl_penalty_coeff"), 0.25);
  EXPECT_EQ(controller.coefficient(), 0.25);
}

// 0.26667 / 0.25 - 1 = 0.066667, times 3 / 100: 1.002. Far off it is cut at 0.2: 1.006; far below at -0.2: 0.994.
TEST(KlController, AnAdaptiveOneMovesToItsTarget) {
  for (const auto& [target, factor] : {std::pair{0.25, 1.002}, {0.01, 1.006}, {100.0, 0.994}}) {
    KlController controller({.enable = true, .adaptive = true, .kl_coef = 0.5, .target_kl = target, .horizon = 100});
    EXPECT_EQ(controller.observe(batch()).get("actor/reward_kl_penalty_coeff"), 0.5);  // of this step
    EXPECT_NEAR(controller.coefficient(), 0.5 * factor, 1e-12);
    KlController resumed({.enable = true, .adaptive = true, .kl_coef = 0.5, .target_kl = target, .horizon = 100});
    resumed.restore(controller.state());
    controller.observe(batch()), resumed.observe(batch());
    EXPECT_EQ(resumed.coefficient(), controller.coefficient());
  }
}

TEST(KlController, OffItCostsNothing) {
  KlController controller({.enable = false, .adaptive = true, .kl_coef = 0.5});
  EXPECT_TRUE(controller.observe(batch()).empty());
  EXPECT_EQ(controller.coefficient(), 0);
}

}  // namespace
}  // namespace tandem
