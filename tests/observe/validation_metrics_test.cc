#include "observe/validation_metrics.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"

namespace tandem {
namespace {

// Five standard errors of a mean of 1000 draws from [0, 1].
constexpr double kSampling = 5 * 0.5 / 31.6;

ValidationSample sample(const std::string& source, uint64_t prompt, double score) {
  ValidationSample made;
  made.data_source = source;
  made.prompt = prompt;
  made.score = score;
  return made;
}

TEST(ValidationMetrics, OneResponseAPromptHasOnlyTheMean) {
  const auto metrics =
      compute_validation_metrics(std::vector{sample("gsm8k", 0, 1), sample("gsm8k", 1, 0), sample("math", 2, 0.25)});
  EXPECT_EQ(to_json(metrics), R"({"val-core/gsm8k/reward/mean@1":0.5,"val-core/math/reward/mean@1":0.25})");
}

TEST(ValidationMetrics, RewardAloneIsCoreAtTheGreatestN) {
  // Interleaved as repeated prompts come: prompt 0 scores {1, 0}, prompt 1 scores {1, 1}.
  const std::vector samples{sample("a/b", 0, 1), sample("a/b", 1, 1), sample("a/b", 0, 0), sample("a/b", 1, 1)};
  const auto metrics = compute_validation_metrics(samples);
  EXPECT_EQ(metrics.get("val-core/a/b/reward/mean@2"), 0.75);
  EXPECT_EQ(metrics.get("val-aux/a/b/reward/std@2"), 0.25);  // (0.5 + 0) / 2
  // Of two draws from {1, 0}, three in four hold the 1 and three in four the 0.
  EXPECT_NEAR(*metrics.get("val-core/a/b/reward/best@2/mean"), (0.75 + 1) / 2, kSampling / 2);
  EXPECT_NEAR(*metrics.get("val-aux/a/b/reward/worst@2/mean"), (0.25 + 1) / 2, kSampling / 2);
  EXPECT_NEAR(*metrics.get("val-core/a/b/reward/best@2/std"), std::sqrt(0.75 * 0.25) / 2, 0.03);
  EXPECT_TRUE(metrics.get("val-aux/a/b/reward/worst@2/std").has_value());
  EXPECT_EQ(metrics.size(), 6u);
}

TEST(ValidationMetrics, SubsetsDoubleUpToN) {
  std::vector<ValidationSample> samples;
  for (int i = 0; i < 6; ++i) samples.push_back(sample("s", 0, i));
  const auto metrics = compute_validation_metrics(samples);
  EXPECT_TRUE(metrics.get("val-aux/s/reward/best@2/mean").has_value());
  EXPECT_TRUE(metrics.get("val-aux/s/reward/best@4/mean").has_value());
  EXPECT_TRUE(metrics.get("val-core/s/reward/best@6/mean").has_value());
  EXPECT_FALSE(metrics.get("val-aux/s/reward/best@8/mean").has_value());
  // Greatest of two draws from 0..5: sum over k of k (2k + 1) / 36 = 125 / 36.
  EXPECT_NEAR(*metrics.get("val-aux/s/reward/best@2/mean"), 125.0 / 36, 0.25);
  EXPECT_NEAR(*metrics.get("val-aux/s/reward/worst@2/mean"), 5 - 125.0 / 36, 0.25);
}

TEST(ValidationMetrics, AccIsCoreWhenGivenAndVotesAreCounted) {
  std::vector<ValidationSample> samples;
  for (const auto& [pred, acc] : {std::pair{"7", 1.0}, {"9", 0.0}, {"7", 1.0}}) {
    auto one = sample("math", 0, 2 * acc - 1);
    one.acc = acc;
    one.pred = pred;
    one.extras = {{"format", 0.5}};
    samples.push_back(one);
  }
  const auto metrics = compute_validation_metrics(samples);
  EXPECT_NEAR(*metrics.get("val-core/math/acc/mean@3"), 2.0 / 3, 1e-12);
  EXPECT_NEAR(*metrics.get("val-aux/math/reward/mean@3"), 1.0 / 3, 1e-12);
  EXPECT_EQ(metrics.get("val-aux/math/format/mean@3"), 0.5);
  EXPECT_EQ(metrics.get("val-aux/math/format/best@2/mean"), 0.5);
  // Two of three answers are right: a majority of three draws is right with 20 / 27; of two, the first drawn decides.
  EXPECT_NEAR(*metrics.get("val-core/math/acc/maj@3/mean"), 20.0 / 27, kSampling);
  EXPECT_NEAR(*metrics.get("val-aux/math/acc/maj@2/mean"), 2.0 / 3, kSampling);
}

TEST(ValidationMetrics, IsDeterministicAndKeepsNan) {
  const std::vector samples{sample("s", 0, 1), sample("s", 0, 0), sample("s", 0, 0.5)};
  EXPECT_EQ(to_json(compute_validation_metrics(samples)), to_json(compute_validation_metrics(samples)));
  const std::vector broken{sample("s", 0, 1), sample("s", 0, std::nan(""))};
  const auto metrics = compute_validation_metrics(broken);
  EXPECT_TRUE(std::isnan(*metrics.get("val-core/s/reward/mean@2")));
  EXPECT_TRUE(std::isnan(*metrics.get("val-core/s/reward/best@2/mean")));
}

TEST(ValidationMetrics, AVariableThatSomeSamplesLackIsRefused) {
  std::vector samples{sample("s", 0, 1), sample("s", 1, 0), sample("t", 2, 0)};
  samples[0].acc = 1;
  try {
    compute_validation_metrics(samples);
    FAIL();
  } catch (const DataError& error) {
    EXPECT_STREQ(error.what(),
                 "validation of s: 1 of 2 samples have no 'acc'; the reward function must return the same keys for "
                 "every row of a data source");
  }
}

}  // namespace
}  // namespace tandem
