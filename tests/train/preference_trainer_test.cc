// The pair loss by hand, and its gradient through a tiny model.
#include "train/preference_trainer.h"

#include <gtest/gtest.h>

#include "train/policy_batch.h"
#include "train/value_trainer.h"

namespace tandem {
namespace {

// σ(ln 3) = 3/4, so a margin of ln 3 costs −ln(3/4) with the slope −1/4, and −ln 3 costs −ln(1/4) with −3/4.
TEST(PairLoss, ByHand) {
  const double ln3 = std::log(3.0);
  struct Case {
    double margin, loss, slope;
  };
  for (const Case& c : {Case{0, std::log(2.0), -0.5}, Case{ln3, std::log(4.0 / 3), -0.25},
                        Case{-ln3, std::log(4.0), -0.75}, Case{800, 0, 0}, Case{-800, 800, -1}}) {
    const PairLoss got = pair_loss(c.margin);
    EXPECT_NEAR(got.loss, c.loss, 1e-12) << c.margin;
    EXPECT_NEAR(got.slope, c.slope, 1e-12) << c.margin;
    if (std::abs(c.margin) > 10) continue;
    const double h = 1e-5, difference = (pair_loss(c.margin + h).loss - pair_loss(c.margin - h).loss) / (2 * h);
    EXPECT_NEAR(got.slope, difference, 1e-9) << c.margin;
  }
}

// Margins 1, 0 and −2: one of three is right, a tie is not.
TEST(PairLoss, Statistics) {
  const std::vector<float> scores = {2, 1, 3, 3, -1, 1};
  const PreferenceStats stats = preference_stats(scores);
  EXPECT_EQ(stats.num_pairs, 3);
  EXPECT_NEAR(stats.accuracy, 1.0 / 3, 1e-12);
  EXPECT_NEAR(stats.margin, -1.0 / 3, 1e-12);
  EXPECT_NEAR(stats.chosen_score, 4.0 / 3, 1e-12);
  EXPECT_NEAR(stats.rejected_score, 5.0 / 3, 1e-12);
  const double e = std::exp(1.0);
  EXPECT_NEAR(stats.loss, (std::log(1 + 1 / e) + std::log(2.0) + std::log(1 + e * e)) / 3, 1e-9);
}

class PairGradient : public testing::TestWithParam<std::string> {
 protected:
  PairGradient() {
    for (const TrainingSample& sample : golden_samples(read_json(folder_ / "golden_grad.json")))
      samples_.push_back(scored_sample(*sample.trajectory));
    check(samples_.size() % 2 == 0, "pairs");
  }
  struct Result {
    PreferenceStats stats;
    DecoderWeights gradients;
  };
  Result gradient(Decoder& model, const BatchingOptions& options = {}) const {
    Optimizer unused(model.weights(), {});
    Result result{{}, zero_weights(model.config())};
    result.stats = PreferenceTrainer(model, unused, options).accumulate(samples_, result.gradients);
    return result;
  }

  std::filesystem::path folder_ = model_folder(GetParam());
  std::unique_ptr<Decoder> model_ = make_value_decoder(folder_);
  std::vector<TrainingSample> samples_;
};

// The score is the value in the state after the last token: what a critic gives for a token that would follow.
TEST_P(PairGradient, ScoresTheStateAfterTheLastToken) {
  const std::vector<float> scores = packed_scores(*model_, samples_, 4096);
  for (size_t i = 0; i < samples_.size(); ++i) {
    Tokens longer = samples_[i].trajectory->response_ids;
    longer.back() = 5;  // whatever follows is not read
    const std::vector<PackItem> item = {{samples_[i].trajectory->prompt->token_ids, longer}};
    EXPECT_EQ(packed_values(*model_, item, 4096)[0].back(), scores[i]) << i;
    EXPECT_EQ(packed_scores(*model_, std::span(samples_).subspan(i, 1), 4096)[0], scores[i]) << i;
  }
}

TEST_P(PairGradient, IsTheDerivative) {
  const Result at = gradient(*model_);
  EXPECT_NEAR(at.stats.loss, preference_stats(packed_scores(*model_, samples_, 4096)).loss, 1e-12);
  const auto pick = {+[](const DecoderWeights& w) { return w.value_head_1E; },
                     +[](const DecoderWeights& w) { return w.final_norm_E; },
                     +[](const DecoderWeights& w) { return w.layers[0].qkv.weight_NE; },
                     +[](const DecoderWeights& w) { return w.embed_VE; }};
  for (const auto& of : pick) {
    const auto direction = values(of(at.gradients));
    const double size = norm(direction), step = 1e-3;
    ASSERT_GT(size, 1e-4);
    const auto loss_at = [&](double distance) {
      auto moved = make_value_decoder(folder_);
      const auto weight = values(of(moved->weights()));
      for (size_t i = 0; i < weight.size(); ++i) weight[i] += static_cast<float>(distance * direction[i] / size);
      return gradient(*moved).stats.loss;
    };
    EXPECT_NEAR((loss_at(step) - loss_at(-step)) / (2 * step), size, 0.01 * size);
  }
  // A shift of all scores changes no margin.
  EXPECT_NEAR(values(at.gradients.value_bias_1)[0], 0, 1e-7);
}

TEST_P(PairGradient, DoesNotKnowHowTheBatchIsCut) {
  const Result whole = gradient(*model_);
  for (const auto& [tokens, count] : {std::pair{1, 0}, {30, 0}, {4096, 1}, {4096, 2}}) {
    BatchingOptions cut;
    cut.max_micro_tokens = tokens, cut.max_micro_samples = count;
    const Result parts = gradient(*model_, cut);
    EXPECT_NEAR(parts.stats.loss, whole.stats.loss, 1e-12);
    EXPECT_LE(relative_error(parts.gradients, whole.gradients), 1e-5);
  }
}

INSTANTIATE_TEST_SUITE_P(Tiny, PairGradient, testing::ValuesIn(kTinyModels),
                         [](const auto& param) { return param.param; });

}  // namespace
}  // namespace tandem
