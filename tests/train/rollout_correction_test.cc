// Importance weights and rejection by hand. Ratios are written as log-prob differences.
#include "train/rollout_correction.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"

namespace tandem {
namespace {

constexpr float kLog2 = 0.69314718F, kLog4 = 1.38629436F;

CorrectionRow row(std::vector<float> log_ratios, std::vector<uint8_t> mask = {}) {
  CorrectionRow out;
  for (const float x : log_ratios) out.rollout_logprobs.push_back(-1), out.old_logprobs.push_back(-1 + x);
  out.mask = mask.empty() ? std::vector<uint8_t>(log_ratios.size(), 1) : mask;
  return out;
}

void expect_weights(const CorrectionRow& row, const std::vector<double>& wanted) {
  ASSERT_EQ(row.weights.size(), wanted.size());
  for (size_t t = 0; t < wanted.size(); ++t) EXPECT_NEAR(row.weights[t], wanted[t], 1e-5) << t;
}

// Ratios 2, 4, 1/2 | 1, and a masked one that nobody looks at.
std::vector<CorrectionRow> rows() { return {row({kLog2, kLog4, -kLog2}), row({0, 9}, {1, 0})}; }

TEST(Correction, TokenWeightsAreCut) {
  auto batch = rows();
  const Metrics metrics = correct_rollout(batch, parse_rollout_correction("token", "3.0", false, "", ""));
  expect_weights(batch[0], {2, 3, 0.5});
  expect_weights(batch[1], {1, 0});
  EXPECT_NEAR(metrics.get("rollout_corr/rollout_is_mean").value(), 6.5 / 4, 1e-6);
  EXPECT_NEAR(metrics.get("rollout_corr/rollout_is_max").value(), 3, 1e-6);
  // (6.5 / 4)^2 / ((4 + 9 + .25 + 1) / 4) = 2.640625 / 3.5625
  EXPECT_NEAR(metrics.get("rollout_corr/rollout_is_eff_sample_size").value(), 2.640625 / 3.5625, 1e-6);
  EXPECT_NEAR(metrics.get("rollout_corr/kl").value(), -2 * kLog2 / 4, 1e-6);  // -(1 + 2 - 1 + 0) ln 2 / 4
  EXPECT_NEAR(metrics.get("rollout_corr/chi2_token").value(), (4 + 16 + 0.25 + 1) / 4 - 1, 1e-5);
  EXPECT_NEAR(metrics.get("rollout_corr/chi2_seq").value(), (16 + 1) / 2.0 - 1, 1e-4);  // products 4 and 1
  // ppl: e^1 for the sampling; e^(1 - 2 ln2 / 3) and e for the other.
  EXPECT_NEAR(metrics.get("rollout_corr/rollout_ppl").value(), std::exp(1), 1e-5);
  EXPECT_NEAR(metrics.get("rollout_corr/training_ppl").value(), std::exp(1) * (std::pow(2, -2.0 / 3) + 1) / 2, 1e-5);
}

TEST(Correction, TwoBoundsDropWhatLiesOutside) {
  auto batch = rows();
  correct_rollout(batch, parse_rollout_correction("token", "0.75_3.0", false, "", ""));
  expect_weights(batch[0], {2, 0, 0});
  EXPECT_EQ(batch[0].mask, (std::vector<uint8_t>{1, 1, 1}));  // a weight of 0 is no rejection
}

TEST(Correction, SequenceWeightsAreProducts) {
  auto batch = rows();
  correct_rollout(batch, parse_rollout_correction("sequence", "10", false, "", ""));
  expect_weights(batch[0], {4, 4, 4});
  expect_weights(batch[1], {1, 0});
  correct_rollout(batch, parse_rollout_correction("sequence", "10", true, "", ""));  // mean (4 + 1) / 2
  expect_weights(batch[0], {1.6, 1.6, 1.6});
  expect_weights(batch[1], {0.4, 0});
}

struct Rejection {
  const char *mode, *threshold;
  std::vector<uint8_t> first, second;
};

TEST(Correction, Rejections) {
  for (const Rejection& c : {
           Rejection{"token_k1", "2.5", {1, 0, 1}, {1, 0}},     // ratio in [0.4, 2.5]
           Rejection{"token_k1", "0.75_5", {0, 0, 1}, {1, 0}},  // the inverse: 1/2, 1/4 and 2; verl's k1 is -log rho
           Rejection{"token_k1", "0.3_1.5", {1, 0, 0}, {1, 0}},
           Rejection{"seq_sum_k1", "0.2_1.1", {1, 1, 1}, {1, 0}},   // 1/4 of the product
           Rejection{"seq_mean_k1", "0.7_1.1", {0, 0, 0}, {1, 0}},  // 0.63
           Rejection{"seq_mean_k1", "0.6_1.1", {1, 1, 1}, {1, 0}},
           Rejection{"token_k2", "0.3", {1, 0, 1}, {1, 0}},     // ln2^2 / 2 = .24, ln4^2 / 2 = .96
           Rejection{"token_k3", "0.2", {0, 0, 1}, {1, 0}},     // 2 - 1 - .693 = .307; 1.614; .5 - 1 + .693 = .193
           Rejection{"seq_sum_k1", "3", {0, 0, 0}, {1, 0}},     // product 4
           Rejection{"seq_mean_k1", "1.5", {0, 0, 0}, {1, 0}},  // geometric mean 4^(1/3) = 1.587
           Rejection{"seq_mean_k1", "1.6", {1, 1, 1}, {1, 0}},  //
           Rejection{"seq_max_k3", "1.6", {0, 0, 0}, {1, 0}},   // 1.614
           Rejection{"seq_mean_k2", "0.5", {1, 1, 1}, {1, 0}},  // (.24 + .96 + .24) / 3 = .48
           Rejection{"token_k1, seq_max_k2", "2.5,1", {1, 0, 1}, {1, 0}},
           Rejection{"seq_sum_k1,token_k1", "3,100", {0, 0, 0}, {1, 0}},
       }) {
    auto batch = rows();
    const Metrics metrics = correct_rollout(batch, parse_rollout_correction("", "2.0", false, c.mode, c.threshold));
    EXPECT_EQ(batch[0].mask, c.first) << c.mode;
    EXPECT_EQ(batch[1].mask, c.second) << c.mode;
    EXPECT_TRUE(batch[0].weights.empty());
    const double dropped = 3.0 - c.first[0] - c.first[1] - c.first[2];
    EXPECT_NEAR(metrics.get("rollout_corr/rollout_rs_masked_fraction").value(), dropped / 4, 1e-12) << c.mode;
    EXPECT_NEAR(metrics.get("rollout_corr/rollout_rs_seq_masked_fraction").value(), dropped > 0 ? 0.5 : 0, 1e-12);
  }
}

TEST(Correction, EqualPoliciesHaveWeightsOfExactlyOne) {
  for (const char* level : {"token", "sequence"}) {
    std::vector<CorrectionRow> batch = {row({0, 0, 0}), row({0}, {0})};
    const Metrics metrics =
        correct_rollout(batch, parse_rollout_correction(level, "0.9_1.1", true, "token_k3,seq_max_k2", "0"));
    EXPECT_EQ(batch[0].weights, (std::vector<float>{1, 1, 1}));
    EXPECT_EQ(batch[0].mask, (std::vector<uint8_t>{1, 1, 1}));
    EXPECT_EQ(metrics.get("rollout_corr/kl"), 0.0);
    EXPECT_EQ(metrics.get("rollout_corr/chi2_seq"), 0.0);
  }
}

TEST(Correction, ExtremeRatiosStayFinite) {
  std::vector<CorrectionRow> batch = {row({500, -500}), row({-500, -500})};
  for (const char* level : {"token", "sequence"}) {
    for (const Metric& metric : correct_rollout(batch, parse_rollout_correction(level, "2.0", true, "", "")))
      EXPECT_TRUE(std::isfinite(metric.value) || metric.name.ends_with("ppl") || metric.name.ends_with("ppl_ratio"))
          << metric.name;
    for (const CorrectionRow& r : batch)
      for (const float weight : r.weights) EXPECT_TRUE(std::isfinite(weight));
  }
}

TEST(Correction, BadSettings) {
  EXPECT_THROW(parse_rollout_correction("tokens", "2", false, "", ""), ConfigError);
  EXPECT_THROW(parse_rollout_correction("token", "two", false, "", ""), ConfigError);
  EXPECT_THROW(parse_rollout_correction("token", "3_2", false, "", ""), ConfigError);
  EXPECT_THROW(parse_rollout_correction("token", "nan", false, "", ""), ConfigError);
  EXPECT_THROW(parse_rollout_correction("", "2", false, "seq_max_k1", "2"), ConfigError);
  EXPECT_THROW(parse_rollout_correction("", "2", false, "token_k4", "2"), ConfigError);
  EXPECT_THROW(parse_rollout_correction("", "2", false, "k1", "2"), ConfigError);
  EXPECT_THROW(parse_rollout_correction("", "2", false, "token_k1", ""), ConfigError);
  EXPECT_THROW(parse_rollout_correction("", "2", false, "token_k1,token_k2,token_k3", "1,2"), ConfigError);
  EXPECT_THROW(parse_rollout_correction("", "2", false, "token_k1", "0_2"), ConfigError);
  EXPECT_FALSE(parse_rollout_correction("", "2.0", false, "", "").enable);
}

}  // namespace
}  // namespace tandem
