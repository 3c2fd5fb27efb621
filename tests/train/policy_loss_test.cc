// Policy losses by hand. A token is written as (ratio, advantage) at an old log-prob of -2.
#include "train/policy_loss.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/error.h"

namespace tandem {
namespace {

constexpr double kOld = -2;

PolicyLossOptions bounds() {
  PolicyLossOptions options;
  options.clip_low = 0.2, options.clip_high = 0.28, options.clip_c = 3;
  return options;
}

LossToken at_ratio(double ratio, double advantage) { return {kOld + std::log(ratio), kOld, advantage, {}, false}; }

PolicyLoss loss_of(std::string_view name, const LossToken& token, const PolicyLossOptions& options = bounds()) {
  return find_policy_loss(name).token(token, options);
}

void expect_loss(std::string_view name, const LossToken& token, double loss, double slope,
                 const PolicyLossOptions& options = bounds()) {
  const PolicyLoss got = loss_of(name, token, options);
  EXPECT_NEAR(got.loss, loss, 1e-9) << name << " " << token.logprob << " " << token.advantage;
  EXPECT_NEAR(got.slope, slope, 1e-9) << name << " " << token.logprob << " " << token.advantage;
}

// max(-A r, -A clip(r, 0.8, 1.28)), and for A < 0 at most -3 A.
TEST(Vanilla, ByHand) {
  struct Case {
    double ratio, advantage, loss, slope;
    bool clipped, lower;
  };
  for (const Case& c : {Case{1.0, 2, -2, -2, false, false},      // on policy
                        Case{1.2, 2, -2.4, -2.4, false, false},  // inside the upper bound
                        Case{1.5, 2, -2.56, 0, true, false},     // 2 * 1.28
                        Case{0.5, 2, -1, -1, false, false},      // a good token made rarer: no bound
                        Case{1.0, -2, 2, 2, false, false},       //
                        Case{0.9, -2, 1.8, 1.8, false, false},   //
                        Case{0.5, -2, 1.6, 0, true, false},      // 2 * 0.8
                        Case{2.0, -2, 4, 4, false, false},       // a bad token made likelier
                        Case{4.5, -2, 6, 0, false, true}}) {     // dual clip: 3 * 2 instead of 9
    expect_loss("vanilla", at_ratio(c.ratio, c.advantage), c.loss, c.slope);
    const PolicyLoss got = loss_of("vanilla", at_ratio(c.ratio, c.advantage));
    EXPECT_NEAR(got.log_ratio, std::log(c.ratio), 1e-12);
    EXPECT_EQ(got.clipped, c.clipped) << c.ratio << " " << c.advantage;
    EXPECT_EQ(got.clipped_lower, c.lower) << c.ratio << " " << c.advantage;
  }
  EXPECT_EQ(loss_of("vanilla", {-0.75, -0.75, 1.5, {}, false}).loss, -1.5);
  EXPECT_EQ(loss_of("vanilla", {-1, -3, 0, {}, false}).slope, 0);
}

// x = tau (r - 1); f = 4 sigma(x) / tau; f' = 4 sigma (1 - sigma).
// r = 1: sigma = 1/2, f = 2 / tau, f' = 1. r = 2, A = 2 (tau 1): sigma(1) = 0.731058579, f = 2.924234315, f' =
// 4 * 0.731058579 * 0.268941421 = 0.786447733; slope -2 * f' * 2. r = 0.5, A = -1 (tau 1.05): sigma(-0.525) =
// 0.371683812, f = 1.415938330, f' = 4 * 0.371683812 * 0.628316188 = 0.934139823; slope f' * 0.5.
TEST(Sapo, ByHand) {
  expect_loss("sapo", at_ratio(1, 2), -4, -2);
  expect_loss("sapo", at_ratio(1, -1), 2 / 1.05, 1);
  const PolicyLoss high = loss_of("sapo", at_ratio(2, 2)), low = loss_of("sapo", at_ratio(0.5, -1));
  EXPECT_NEAR(high.loss, -2 * 2.924234315, 1e-8);
  EXPECT_NEAR(high.slope, -4 * 0.786447733, 1e-8);
  EXPECT_NEAR(low.loss, 1.415938330, 1e-8);
  EXPECT_NEAR(low.slope, 0.5 * 0.934139823, 1e-8);
}

// -clip(r) A log pi, the clip a constant: at r = 1.5, A = 2: log pi = -2 + ln 1.5 = -1.594534892, weight 1.28.
TEST(Cispo, ByHand) {
  expect_loss("cispo", at_ratio(1.5, 2), -2 * 1.28 * (kOld + std::log(1.5)), -2.56);
  expect_loss("cispo", at_ratio(0.5, 2), -2 * 0.8 * (kOld + std::log(0.5)), -1.6);  // both sides, as in verl
  expect_loss("cispo", at_ratio(1.1, -2), 2 * 1.1 * (kOld + std::log(1.1)), 2.2);
  EXPECT_TRUE(loss_of("cispo", at_ratio(1.5, 2)).clipped);
  EXPECT_FALSE(loss_of("cispo", at_ratio(1.1, 2)).clipped);
}

TEST(Plain, ByHand) {
  for (const char* name : {"gpg", "reinforce"}) {
    expect_loss(name, at_ratio(1, 2), 4, -2);  // -2 * -2
    expect_loss(name, at_ratio(std::exp(0.5), -3), -4.5, 3);
  }
  PolicyLossOptions options = bounds();
  options.dro_beta = 0.5;  // -(2 * -1.5 - 0.25 * 0.25) = 3.0625; slope -2 + 0.5 * 0.5
  expect_loss("dro", at_ratio(std::exp(0.5), 2), 3.0625, -1.75, options);
  expect_loss("dro", at_ratio(std::exp(-1), 0), 0.25, -0.5, options);  // a pull without advantage
}

// pi_old = e^-2 = 0.135335. Bounds 0.2 and 0.28 on pi - pi_old: pi = 0.4 is 0.264665 above, 0.45 is 0.314665 above.
TEST(Dppo, TotalVariation) {
  const auto token = [](double p, double advantage) { return LossToken{std::log(p), kOld, advantage, {}, false}; };
  const double ratio = 0.4 / std::exp(kOld);  // 2.9556: below c = 3
  expect_loss("dppo_tv", token(0.4, 2), -2 * ratio * std::log(0.4), -2 * ratio);
  expect_loss("dppo_tv", token(0.45, 2), 0, 0);                        // too far up
  expect_loss("dppo_tv", token(0.45, -2), 2 * 3 * std::log(0.45), 6);  // a way back is open; weight cut at 3
  EXPECT_TRUE(loss_of("dppo_tv", token(0.45, -2)).clipped_lower);
  EXPECT_FALSE(loss_of("dppo_tv", token(0.45, 2)).clipped_lower);
  const LossToken fallen{std::log(0.25), std::log(0.5), -1, {}, false};  // 0.25 below
  expect_loss("dppo_tv", fallen, 0, 0);
  EXPECT_TRUE(loss_of("dppo_tv", fallen).clipped);
  LossToken good = fallen;
  good.advantage = 1;
  expect_loss("dppo_tv", good, -0.5 * std::log(0.25), -0.5);
}

// Old 0.5, new 0.8: 0.5 ln(0.5/0.8) + 0.5 ln(0.5/0.2) = -0.235002 + 0.458145 = 0.223144. New 0.2 is as far.
TEST(Dppo, BinaryKl) {
  const auto token = [](double p, double advantage) {
    return LossToken{std::log(p), std::log(0.5), advantage, {}, false};
  };
  expect_loss("dppo_kl", token(0.8, 1), -1.6 * std::log(0.8), -1.6);  // 0.2231 <= 0.28
  expect_loss("dppo_kl", token(0.2, -1), 0, 0);                       // 0.2231 > 0.2, and it would fall further
  expect_loss("dppo_kl", token(0.8, -1), 1.6 * std::log(0.8), 1.6);   // back inwards
  PolicyLossOptions tight = bounds();
  tight.clip_high = 0.2;
  expect_loss("dppo_kl", token(0.8, 1), 0, 0, tight);
}

struct Rows {
  std::vector<double> logprobs;
  std::vector<float> old;
  std::vector<uint8_t> mask;
};
LossSequence sequence(const Rows& rows, double advantage, uint64_t prompt = 0) {
  return {rows.logprobs, rows.old, advantage, {}, rows.mask, prompt, 0};
}

// Log-ratios 0.1, 0.3 and a masked 9: mean 0.2, s = e^0.2 = 1.221402758. A = 1: inside 1.28. With A = 1 and mean 0.4,
// e^0.4 = 1.4918 is clipped to 1.28.
TEST(Gspo, TheRatioIsTheSequences) {
  const Rows rows{{-1.9, -0.7, 0}, {-2, -1, -9}, {1, 1, 0}};
  const auto& gspo = find_policy_loss("gspo");
  const SequenceTerms terms = gspo.sequence(sequence(rows, 1), bounds());
  EXPECT_NEAR(terms.log_ratio, 0.2, 1e-12);
  LossToken token{-1.9, -2, 1, terms, false};
  expect_loss("gspo", token, -std::exp(0.2), -std::exp(0.2));
  token.sequence.log_ratio = 0.4;
  expect_loss("gspo", token, -1.28, 0);
  EXPECT_TRUE(loss_of("gspo", token).clipped);
  token.advantage = -1;  // no dual clip: e^2 stays
  token.sequence.log_ratio = 2;
  expect_loss("gspo", token, std::exp(2), std::exp(2));
  token.sequence.log_ratio = 50;  // at most e^10
  expect_loss("gspo", token, std::exp(10), 0);
}

// A = 2, bounds -0.2 and 0.28 on log-ratios 0.1, 0.5 and -0.4: kept 0.1, 0.28 (bounded: it would gain), -0.4: mean
// -0.02 / 3. A = -2: kept 0.1, 0.5, -0.2 (bounded): mean 0.4 / 3.
TEST(GeoMean, ByHand) {
  const Rows rows{{-1.9, -1.5, -2.4}, {-2, -2, -2}, {1, 1, 1}};
  const auto& kind = find_policy_loss("geo_mean");
  const SequenceTerms up = kind.sequence(sequence(rows, 2), bounds()),
                      down = kind.sequence(sequence(rows, -2), bounds());
  EXPECT_NEAR(up.log_ratio, -0.02 / 3, 1e-12);
  EXPECT_NEAR(down.log_ratio, 0.4 / 3, 1e-12);
  EXPECT_EQ(up.advantage, 2);
  const double gain = -2 * std::exp(-0.02 / 3), cost = 2 * std::exp(0.4 / 3);
  expect_loss("geo_mean", {-1.9, -2, 2, up, false}, gain, gain);
  expect_loss("geo_mean", {-1.5, -2, 2, up, false}, gain, 0);  // bounded
  expect_loss("geo_mean", {-2.4, -2, 2, up, false}, gain, gain);
  expect_loss("geo_mean", {-1.5, -2, -2, down, false}, cost, cost);
  expect_loss("geo_mean", {-2.4, -2, -2, down, false}, cost, 0);  // bounded
  const Rows masked{{-1}, {-2}, {0}};
  EXPECT_EQ(kind.sequence(sequence(masked, 2), bounds()).log_ratio, 0);
}

// Advantages 1 and -1 (mean 0), log-probs -1, -2 | -3, -2 (mean -2): covariances 1, 0 | 1, 0.
struct Covariances {
  Rows first{{-1, -2}, {-1, -2}, {1, 1}}, second{{-3, -2, 5}, {-3, -2, -1}, {1, 1, 0}};
  std::vector<LossSequence> batch = {sequence(first, 1, 10), sequence(second, -1, 20)};
};
using Flags = std::vector<std::vector<uint8_t>>;

TEST(KlCov, TheGreatestCovariances) {
  Covariances data;
  const auto& kind = find_policy_loss("kl_cov");
  PolicyLossOptions options = bounds();
  options.kl_cov_ratio = 0.5;  // 2 of 4 counted tokens
  EXPECT_EQ(kind.choose(data.batch, options, 1), (Flags{{1, 0}, {1, 0, 0}}));
  options.kl_cov_ratio = 0.3;  // 1 of 4; of equals the one of the lower prompt, wherever it lies
  EXPECT_EQ(kind.choose(data.batch, options, 1), (Flags{{1, 0}, {0, 0, 0}}));
  std::swap(data.batch[0], data.batch[1]);
  EXPECT_EQ(kind.choose(data.batch, options, 1), (Flags{{0, 0, 0}, {1, 0}}));
  options.kl_cov_ratio = 0;  // none, where any other share is at least one token
  EXPECT_EQ(kind.choose(data.batch, options, 1), (Flags{{0, 0, 0}, {0, 0}}));
  options.kl_cov_coef = 0.5;
  LossToken token = at_ratio(std::exp(0.2), 2);
  expect_loss("kl_cov", token, -2 * std::exp(0.2), -2 * std::exp(0.2), options);
  token.chosen = true;
  expect_loss("kl_cov", token, -2 * std::exp(0.2) + 0.1, -2 * std::exp(0.2) + 0.5, options);
  token = at_ratio(1, 2);
  token.chosen = true;
  expect_loss("kl_cov", token, -2, -2, options);  // |0| has no slope
}

TEST(ClipCov, ARandomShareWithinTheBounds) {
  Covariances data;
  const auto& kind = find_policy_loss("clip_cov");
  PolicyLossOptions options = bounds();
  options.clip_cov_low = 0.5, options.clip_cov_ratio = 0.5;
  EXPECT_EQ(kind.choose(data.batch, options, 1), (Flags{{1, 0}, {1, 0, 0}}));  // both of covariance 1
  options.clip_cov_low = 1;                                                    // 1 is not above 1
  EXPECT_EQ(kind.choose(data.batch, options, 1), (Flags{{0, 0}, {0, 0, 0}}));
  options.clip_cov_low = 0.5, options.clip_cov_ratio = 0;  // at least one
  int first = 0;
  for (uint64_t seed = 0; seed < 64; ++seed) {
    const Flags flags = kind.choose(data.batch, options, seed);
    EXPECT_EQ(flags[0][0] + flags[1][0], 1);
    first += flags[0][0];
    std::vector<LossSequence> turned = {data.batch[1], data.batch[0]};
    EXPECT_EQ(kind.choose(turned, options, seed), (Flags{flags[1], flags[0]}));
  }
  EXPECT_GT(first, 16);
  EXPECT_LT(first, 48);
  data.first.old[0] = -2;  // its ratio e is clipped by PPO already: not a candidate
  options.clip_cov_ratio = 1;
  EXPECT_EQ(kind.choose(data.batch, options, 1), (Flags{{0, 0}, {1, 0, 0}}));
  LossToken token = at_ratio(1.1, 2);
  expect_loss("clip_cov", token, -2.2, -2.2);
  expect_loss("clip_cov", at_ratio(4.5, -2), 9, 9);  // no dual clip
  token.chosen = true;
  expect_loss("clip_cov", token, 0, 0);
}

TEST(EveryLoss, StaysFiniteAtExtremeRatios) {
  for (const PolicyLossKind& kind : policy_losses())
    for (const double gap : {-10000.0, -100.0, 100.0, 10000.0})
      for (const double advantage : {1.0, 0.0, -1.0}) {
        const double logprob = gap < 0 ? -1 + gap : -1, old = gap < 0 ? -1 : -1 - gap;
        const PolicyLoss got = kind.token({logprob, old, advantage, {gap, advantage}, true}, bounds());
        if (kind.name == "geo_mean" && std::abs(gap) == 10000) continue;  // its terms are within +-20
        EXPECT_TRUE(std::isfinite(got.loss) && std::isfinite(got.slope)) << kind.name << " " << gap;
        EXPECT_EQ(got.log_ratio, std::copysign(20, gap)) << kind.name;
      }
}

TEST(EveryLoss, HasOneRow) {
  for (const PolicyLossKind& kind : policy_losses()) {
    EXPECT_EQ(&find_policy_loss(kind.name), &kind);
    EXPECT_EQ(kind.sequence != nullptr, kind.scope == LossScope::kSequence) << kind.name;
    EXPECT_EQ(kind.choose != nullptr, kind.scope == LossScope::kMiniBatch) << kind.name;
  }
  EXPECT_THROW(find_policy_loss("ppo"), ConfigError);
}

}  // namespace
}  // namespace tandem
