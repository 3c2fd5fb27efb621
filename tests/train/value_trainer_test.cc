// The critic's loss by hand, and its gradient through a tiny model.
#include "train/value_trainer.h"

#include <gtest/gtest.h>

#include "base/rng.h"
#include "train/policy_batch.h"

namespace tandem {
namespace {

// Old value 1, range 0.5, return 2: (1.2 - 2)^2 / 2 = .32 within the range. 1.8 is kept at 1.5: (1.5 - 2)^2 / 2 = .125
// is more than .02. Return 0: 1.8 is worse than the kept 1.5, so the plain 1.62 stays.
TEST(ValueLoss, ByHand) {
  struct Case {
    double value, target, loss, slope;
    bool clipped;
  };
  for (const Case& c : {Case{1.2, 2, 0.32, -0.8, false}, Case{1.8, 2, 0.125, 0, true}, Case{1.8, 0, 1.62, 1.8, false},
                        Case{0.2, 0, 0.125, 0, true}, Case{0.2, 3, 3.92, -2.8, false}, Case{1, 1, 0, 0, false}}) {
    const ValueLoss got = clipped_value_loss(c.value, 1, c.target, 0.5);
    EXPECT_NEAR(got.loss, c.loss, 1e-12) << c.value << " " << c.target;
    EXPECT_NEAR(got.slope, c.slope, 1e-12) << c.value << " " << c.target;
    EXPECT_EQ(got.clipped, c.clipped) << c.value << " " << c.target;
  }
}

TEST(ValueLoss, TheSlopeIsTheDerivative) {
  const double h = 1e-6;
  for (const double value : {-0.3, 0.2, 0.7, 1.1, 1.4, 1.8, 2.6})
    for (const double target : {-1.0, 0.95, 3.0}) {
      const auto loss_at = [&](double v) { return clipped_value_loss(v, 1, target, 0.5).loss; };
      EXPECT_NEAR(clipped_value_loss(value, 1, target, 0.5).slope, (loss_at(value + h) - loss_at(value - h)) / (2 * h),
                  1e-8)
          << value << " " << target;
    }
}

class ValueGradient : public testing::TestWithParam<std::string> {
 protected:
  ValueGradient() {
    Philox random(11);
    std::vector<PackItem> items;
    for (const TrainingSample& sample : samples_) items.push_back(pack_item(sample));
    const auto now = packed_values(*critic_, items, 4096);
    for (size_t i = 0; i < samples_.size(); ++i) {
      samples_[i].old_values = now[i];
      for (float& value : samples_[i].old_values) {
        samples_[i].returns.push_back(value + random.normal());
        value += static_cast<float>(0.6 * random.normal());  // some beyond the range
      }
    }
    samples_[1].mask.assign(num_tokens(samples_[1]), 1);
    samples_[1].mask[0] = 0;
    options_.mini_batch_samples = 64;
  }
  struct Result {
    ValueStats stats;
    DecoderWeights gradients;
  };
  Result gradient(Decoder& critic, const ValueTrainerOptions& options) {
    Optimizer unused(critic.weights(), {});
    Result result{{}, zero_weights(critic.config())};
    result.stats = ValueTrainer(critic, unused, options).accumulate(samples_, result.gradients);
    return result;
  }
  // Along a parameter's gradient the loss rises by the gradient's norm.
  void expect_slope(at::Tensor (*pick)(const DecoderWeights&), double step) {
    const Result at = gradient(*critic_, options_);
    const auto direction = values(pick(at.gradients));
    const double size = norm(direction);
    ASSERT_GT(size, 1e-4);
    const auto loss_at = [&](double distance) {
      auto moved = make_value_decoder(folder_);
      const auto weight = values(pick(moved->weights()));
      for (size_t i = 0; i < weight.size(); ++i) weight[i] += static_cast<float>(distance * direction[i] / size);
      return gradient(*moved, options_).stats.vf_loss;
    };
    EXPECT_NEAR((loss_at(step) - loss_at(-step)) / (2 * step), size, 0.01 * size);
  }

  std::filesystem::path folder_ = model_folder(GetParam());
  std::unique_ptr<Decoder> critic_ = make_value_decoder(folder_);
  std::vector<TrainingSample> samples_ = golden_samples(read_json(folder_ / "golden_grad.json"));
  ValueTrainerOptions options_;
};

TEST_P(ValueGradient, IsTheDerivative) {
  expect_slope([](const DecoderWeights& w) { return w.value_head_1E; }, 1e-3);
  expect_slope([](const DecoderWeights& w) { return w.value_bias_1; }, 1e-3);
  expect_slope([](const DecoderWeights& w) { return w.final_norm_E; }, 1e-3);
  expect_slope([](const DecoderWeights& w) { return w.layers[0].qkv.weight_NE; }, 1e-3);
}

TEST_P(ValueGradient, DoesNotKnowHowTheBatchIsCut) {
  const Result whole = gradient(*critic_, options_);
  EXPECT_EQ(whole.stats.num_tokens, 25);  // one of 26 is masked
  for (const auto& [tokens, count] : {std::pair{20, 0}, {4096, 1}, {4096, 4}}) {
    ValueTrainerOptions cut = options_;
    cut.max_micro_tokens = tokens, cut.max_micro_samples = count;
    const Result parts = gradient(*critic_, cut);
    EXPECT_NEAR(parts.stats.vf_loss, whole.stats.vf_loss, 1e-12);
    EXPECT_LE(relative_error(parts.gradients, whole.gradients), 1e-5);
  }
}

// The value of a token's state does not depend on the token: the samples of a prompt start from the same one.
TEST_P(ValueGradient, ValuesAreThoseOfTheStateBeforeTheToken) {
  std::vector<PackItem> items;
  for (const TrainingSample& sample : samples_) items.push_back(pack_item(sample));
  const auto packed = packed_values(*critic_, items, 4096);
  for (size_t i = 0; i < items.size(); ++i) {
    const auto alone = packed_values(*critic_, std::span(items).subspan(i, 1), 4096)[0];
    EXPECT_EQ(alone, packed[i]) << i;
    if (i > 0 && items[i].prompt.data() == items[i - 1].prompt.data()) {
      EXPECT_EQ(packed[i][0], packed[i - 1][0]);
    }
  }
}

TEST_P(ValueGradient, UpdatesBringValuesToReturns) {
  auto critic = make_value_decoder(folder_);
  for (TrainingSample& sample : samples_) std::ranges::fill(sample.returns, 0.7);
  options_.clip_range = 100, options_.epochs = 1;
  Optimizer optimizer(critic->weights(), {.lr = 3e-3, .weight_decay = 0});
  ValueTrainer trainer(*critic, optimizer, options_);
  const double before = trainer.update(samples_).vf_loss;
  double after = before;
  for (int i = 0; i < 30; ++i) after = trainer.update(samples_).vf_loss;
  EXPECT_LT(after, 0.1 * before);
}

INSTANTIATE_TEST_SUITE_P(Tiny, ValueGradient, testing::ValuesIn(kTinyModels),
                         [](const auto& param) { return param.param; });

}  // namespace
}  // namespace tandem
