// AdamW against torch in float64, its precision over long runs, clipping, and the learning rate's course.
#include "train/optimizer.h"

#include <gtest/gtest.h>

#include <array>

#include "checkpoint/scratch_folder.h"
#include "train/policy_batch.h"

namespace tandem {
namespace {

// A model whose first six weights are the ones that move; every other gradient is 0.
class OneVector : public testing::Test {
 protected:
  std::span<float> weight() { return values(weights_.embed_VE).first(6); }
  std::span<float> gradient() { return values(gradients_.embed_VE).first(6); }
  ModelConfig config_ = load_model_config(model_folder("qwen3"));
  DecoderWeights weights_ = zero_weights(config_), gradients_ = zero_weights(config_);
};

TEST_F(OneVector, AdamWAgreesWithTorch) {
  const auto golden = read_json(model_folder("") / "adamw.json");
  OptimizerOptions options{.lr = golden["lr"],
                           .beta1 = golden["betas"][0],
                           .beta2 = golden["betas"][1],
                           .eps = golden["eps"],
                           .weight_decay = golden["weight_decay"],
                           .clip_grad = golden["max_norm"]};
  Optimizer optimizer(weights_, options);
  std::ranges::copy(golden["initial"].get<std::vector<float>>(), weight().begin());
  for (size_t s = 0; s < golden["steps"].size(); ++s) {
    const auto& step = golden["steps"][s];
    std::ranges::copy(step["gradient"].get<std::vector<float>>(), gradient().begin());
    const auto result = optimizer.step(weights_, gradients_);
    EXPECT_NEAR(result.grad_norm, step["norm"].get<double>(), 1e-6 * result.grad_norm);
    EXPECT_EQ(result.lr, options.lr);
    for (size_t i = 0; i < 6; ++i) {
      EXPECT_NEAR(weight()[i], step["weights"][i].get<double>(), 1e-6) << s << " " << i;
      EXPECT_NEAR(values(optimizer.first_moment().embed_VE)[i], step["exp_avg"][i].get<double>(), 1e-7);
      EXPECT_NEAR(values(optimizer.second_moment().embed_VE)[i], step["exp_avg_sq"][i].get<double>(), 1e-8);
    }
  }
  EXPECT_EQ(optimizer.num_steps(), 5);
}

// CKPT-2: steps of 1e-6 move the fp32 weights, and in time the bf16 copy that is saved: just below 1 its spacing is
// 2^-8 = 0.0039, near 0.02 it is 2^-13 = 0.000122.
TEST_F(OneVector, SmallStepsAreNotRoundedAway) {
  const ScratchFolder folder;
  const auto saved = [&] {
    save_weights(folder.path(), config_, weights_, DType::kBF16);
    return read_weights(folder.path(), config_);
  };
  OptimizerOptions options{.lr = 1e-6, .weight_decay = 0, .clip_grad = 0};
  auto optimizer = std::make_unique<Optimizer>(weights_, options);
  weight()[0] = 1.0f, weight()[1] = 0.02f, weight()[2] = 0.02001953125f;
  for (int i = 0; i < 3; ++i) gradient()[i] = 1.0f;
  const auto expect = [&](int steps, std::array<double, 3> master, std::array<float, 3> copy) {
    while (optimizer->num_steps() < steps) optimizer->step(weights_, gradients_);
    const auto bf16 = saved();
    for (int i = 0; i < 3; ++i) {
      EXPECT_NEAR(weight()[i], master[i], 5e-5 * (i == 0 ? 1 : 0.02)) << steps << " " << i;
      EXPECT_EQ(values(bf16.embed_VE)[i], copy[i]) << steps << " " << i;
    }
  };
  expect(100, {0.9999, 0.0199, 0.01991953}, {1.0f, 0.0198974609375f, 0.0198974609375f});
  // Saved and taken up again in the middle: fp32 weights, moments and the count.
  auto resumed = std::make_unique<Optimizer>(weights_, options);
  for (const auto& [from, to] : {std::pair{&optimizer->first_moment(), &resumed->first_moment()},
                                 {&optimizer->second_moment(), &resumed->second_moment()}})
    std::ranges::copy(values(from->embed_VE), values(to->embed_VE).begin());
  resumed->set_num_steps(optimizer->num_steps());
  optimizer = std::move(resumed);
  expect(1000, {0.999, 0.019, 0.01901953}, {1.0f, 0.01904296875f, 0.01904296875f});
  expect(3000, {0.997, 0.017, 0.01701953}, {0.99609375f, 0.0169677734375f, 0.0169677734375f});
}

// Norm 5 of (3, 4) is cut to 1; the moments show the gradient that was used. Clipping is of all parameters together.
TEST_F(OneVector, ClipsByTheGlobalNorm) {
  Optimizer clipped(weights_, {.clip_grad = 1.0}), plain(weights_, {.clip_grad = 0});
  gradient()[0] = 3;
  values(gradients_.final_norm_E)[1] = 4;
  EXPECT_DOUBLE_EQ(clipped.step(weights_, gradients_).grad_norm, 5);
  EXPECT_NEAR(values(clipped.first_moment().embed_VE)[0], 0.1 * 0.6, 1e-6);
  EXPECT_NEAR(values(clipped.first_moment().final_norm_E)[1], 0.1 * 0.8, 1e-6);
  plain.step(weights_, gradients_);
  EXPECT_NEAR(values(plain.first_moment().embed_VE)[0], 0.3, 1e-6);
}

TEST_F(OneVector, AGradientThatIsNotFiniteChangesNothing) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    Optimizer optimizer(weights_, {.lr = 0.1});
    weight()[0] = 2;
    gradient()[0] = 1, gradient()[3] = bad;
    EXPECT_FALSE(std::isfinite(optimizer.step(weights_, gradients_).grad_norm));
    EXPECT_EQ(weight()[0], 2.0f);
    EXPECT_EQ(values(optimizer.first_moment().embed_VE)[0], 0.0f);
    EXPECT_EQ(optimizer.num_steps(), 0);
    gradient()[3] = 0;
    EXPECT_NEAR(optimizer.step(weights_, gradients_).grad_norm, 1, 1e-12);
    EXPECT_NEAR(weight()[0], 2 - 0.1 * 0.01 * 2 - 0.1, 1e-5);
  }
}

TEST(LearningRate, ByHand) {
  OptimizerOptions options{.lr = 0.8, .warmup_steps = 4, .total_steps = 12};
  const auto at = [&](int64_t step) { return learning_rate(options, step); };
  for (const auto& [step, rate] : {std::pair{0, 0.0}, {1, 0.2}, {3, 0.6}, {4, 0.8}, {11, 0.8}, {1000, 0.8}})
    EXPECT_NEAR(at(step), rate, 1e-15) << step;
  // Half a wave over the 8 steps after the warm-up: (1 + cos(pi * progress)) / 2 at 0, 1/4, 1/2, 1.
  options.schedule = LrSchedule::kCosine;
  for (const auto& [step, rate] : {std::pair{2, 0.4}, {4, 0.8}, {6, 0.8 * 0.8535533905932737}, {8, 0.4}, {12, 0.0}})
    EXPECT_NEAR(at(step), rate, 1e-15) << step;
  options.min_lr_ratio = 0.25;  // 0.25 + 0.75 * wave
  for (const auto& [step, rate] : {std::pair{4, 0.8}, {8, 0.8 * 0.625}, {12, 0.2}}) EXPECT_NEAR(at(step), rate, 1e-15);
  options = {.lr = 0.5};  // no warm-up: the first step already has the full rate
  EXPECT_EQ(at(0), 0.5);
}

}  // namespace
}  // namespace tandem
