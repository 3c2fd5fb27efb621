// KL estimates and aggregations by hand, and slopes against differences.
#include "train/loss.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/error.h"
#include "train/policy_loss.h"

namespace tandem {
namespace {

ValueAndSlope kl(std::string_view name, double x) { return token_kl(parse_kl_type(name), -1.5, -1.5 + x); }

// x = ref_logprob - logprob; k3 = e^x - x - 1 and its slope 1 - e^x (LOSS-2): e^0.1 = 1.105170918, e^-0.1 =
// 0.904837418, e = 2.718281828, 1/e = 0.367879441. e^3 - 4 = 16.08 is beyond the limit of 10, and so are x = 100 and
// -100 (19 at -20).
TEST(TokenKl, K3ByHand) {
  struct Case {
    double x, value, slope;
  };
  for (const auto& [x, value, slope] :
       {Case{0, 0, 0}, Case{.1, 0.005170918076, -0.105170918076}, Case{-.1, 0.004837418036, 0.095162581964},
        Case{1, 0.718281828459, -1.718281828459}, Case{-1, 0.367879441171, 0.632120558829}, Case{3, 10, 0},
        Case{100, 10, 0}, Case{-100, 10, 0}, Case{2.5, 12.182493960703 - 3.5, 1 - 12.182493960703}}) {
    const ValueAndSlope got = kl("low_var_kl", x);
    EXPECT_NEAR(got.value, value, 1e-11) << x;
    EXPECT_NEAR(got.slope, slope, 1e-11) << x;
  }
  // Small differences are not lost to cancellation: x = 1e-7 gives x^2 / 2.
  EXPECT_NEAR(token_kl(parse_kl_type("k3"), 0, 1e-7).value, 5e-15, 1e-17);
}

TEST(TokenKl, OthersByHand) {
  EXPECT_EQ(kl("kl", 0.5).value, -0.5);
  EXPECT_EQ(kl("k1", 0.5).slope, 1);
  EXPECT_EQ(kl("abs", 0.5).value, 0.5);
  EXPECT_EQ(kl("abs", 0.5).slope, -1);
  EXPECT_EQ(kl("abs", -0.5).slope, 1);
  EXPECT_EQ(kl("abs", 0).slope, 0);
  EXPECT_EQ(kl("mse", 0.5).value, 0.125);
  EXPECT_EQ(kl("k2", 0.5).slope, -0.5);
  for (const char* name : {"k1", "abs", "k2", "k3"})
    for (const double x : {-100.0, 100.0}) {
      EXPECT_TRUE(std::isfinite(kl(name, x).value)) << name;
      EXPECT_TRUE(std::isfinite(kl(name, x).slope)) << name;
    }
}

// "+": the value is the estimator's, the slope k2's (d = logprob - ref_logprob = -x).
TEST(TokenKl, StraightThrough) {
  for (const char* name : {"kl+", "abs+", "mse+", "low_var_kl+", "k3+"}) {
    const std::string_view plain = std::string_view(name).substr(0, std::string_view(name).size() - 1);
    EXPECT_EQ(kl(name, 0.75).value, kl(plain, 0.75).value) << name;
    EXPECT_EQ(kl(name, 0.75).slope, -0.75) << name;
  }
}

TEST(TokenKl, SlopesAreDerivatives) {
  const double h = 1e-6;
  for (const char* name : {"k1", "abs", "k2", "k3"})
    for (const double logprob : {-4.0, -2.2, -1.3, -0.7, -0.01}) {
      const KlType type = parse_kl_type(name);
      const double slope = token_kl(type, logprob, -1.5).slope;
      const double difference =
          (token_kl(type, logprob + h, -1.5).value - token_kl(type, logprob - h, -1.5).value) / (2 * h);
      EXPECT_NEAR(slope, difference, 1e-6 * (1 + std::abs(slope))) << name << " " << logprob;
    }
}

TEST(TokenKl, UnknownNames) {
  for (const char* name : {"", "+", "k4", "kl++", "low_var"}) EXPECT_THROW(parse_kl_type(name), ConfigError) << name;
}

// LOSS-1: responses of 1 and 3 tokens with losses -1 and +1, +1, +1.
TEST(TokenWeight, FourTokensOfTwoResponses) {
  const BatchCounts counts{4, 2, 8};
  const auto total = [&](std::string_view name) {
    const LossAggregation mode = parse_loss_aggregation(name);
    return -1 * token_weight(mode, counts, 1) + 3 * token_weight(mode, counts, 3);
  };
  EXPECT_NEAR(total("token-mean"), 0.5, 1e-15);                 // (-1 + 3) / 4
  EXPECT_NEAR(total("token-sum"), 2, 1e-15);                    //
  EXPECT_NEAR(total("seq-mean-token-sum"), 1, 1e-15);           // (-1 + 3) / 2
  EXPECT_NEAR(total("seq-mean-token-mean"), 0, 1e-7);           // (-1 + 1) / 2
  EXPECT_NEAR(total("seq-mean-token-sum-norm"), 0.125, 1e-15);  // (-1 + 3) / 8 / 2
  EXPECT_THROW(parse_loss_aggregation("mean"), ConfigError);
}

// LOSS-1's gradient: p = sigmoid(0), so d log p / d theta = 0.5 for every token; on policy a token's slope is -A.
TEST(TokenWeight, GradientOfOneParameter) {
  double gradient = 0;
  for (const auto& [advantage, length] : {std::pair{1.0, 1}, {-1.0, 3}})
    for (int t = 0; t < length; ++t)
      gradient += token_weight(LossAggregation::kTokenMean, {4, 2, 1}, length) *
                  vanilla_loss({std::log(0.5), std::log(0.5), advantage, {}, false}, {}).slope * 0.5;
  EXPECT_NEAR(gradient, 0.25, 1e-15);  // (-0.5 + 1.5) / 4
}

}  // namespace
}  // namespace tandem
