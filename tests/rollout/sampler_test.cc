#include "rollout/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "base/error.h"
#include "base/rng.h"
#include "checkpoint/scratch_folder.h"

namespace tandem {
namespace {

constexpr int kDraws = 20000;

// Probabilities 0.4, 0.3, 0.2, 0.1 of ids 2, 0, 3, 1.
const std::vector<float> kRow{std::log(0.3F), std::log(0.1F), std::log(0.4F), std::log(0.2F)};

std::map<TokenId, double> frequencies(std::span<const float> logits, const SamplingParams& params,
                                      int64_t num_drawable = 1000, bool may_end = true) {
  std::map<TokenId, double> found;
  for (uint32_t i = 0; i < kDraws; ++i) {
    const double uniform = uniform_for({9, 1, i, 0}, i % 50);
    found[draw_token(logits, params, num_drawable, may_end, uniform).id] += 1.0 / kDraws;
  }
  return found;
}

// Five standard deviations: the draws are fixed, so this passes always or never.
void expect_distribution(const std::map<TokenId, double>& found, const std::map<TokenId, double>& expected) {
  EXPECT_EQ(found.size(), expected.size());
  for (const auto& [id, p] : expected) {
    const auto place = found.find(id);
    ASSERT_NE(place, found.end()) << "id " << id << " was never drawn";
    EXPECT_NEAR(place->second, p, 1e-9 + 5 * std::sqrt(p * (1 - p) / kDraws)) << "id " << id;
  }
}

TEST(Sampler, DrawsTheWholeDistribution) {
  expect_distribution(frequencies(kRow, {}), {{0, 0.3}, {1, 0.1}, {2, 0.4}, {3, 0.2}});
}

TEST(Sampler, TemperatureSharpens) {
  SamplingParams params;
  params.temperature = 0.5;  // squares: 9, 1, 16, 4 of 30
  expect_distribution(frequencies(kRow, params), {{0, 9 / 30.0}, {1, 1 / 30.0}, {2, 16 / 30.0}, {3, 4 / 30.0}});
  EXPECT_NEAR(draw_token(kRow, params, 4, true, 0.01).logprob, std::log(9 / 30.0), 1e-6) << "id 0 comes first";
}

TEST(Sampler, TopKKeepsTheLikeliest) {
  SamplingParams params;
  params.top_k = 2;
  expect_distribution(frequencies(kRow, params), {{2, 4 / 7.0}, {0, 3 / 7.0}});
  params.top_k = 1;
  expect_distribution(frequencies(kRow, params), {{2, 1.0}});
  params.top_k = 4;
  expect_distribution(frequencies(kRow, params), {{0, 0.3}, {1, 0.1}, {2, 0.4}, {3, 0.2}});
}

TEST(Sampler, TopPKeepsTheFewestThatReachIt) {
  SamplingParams params;
  params.top_p = 0.69;  // 0.4 + 0.3 reach it
  expect_distribution(frequencies(kRow, params), {{2, 4 / 7.0}, {0, 3 / 7.0}});
  params.top_p = 0.75;
  expect_distribution(frequencies(kRow, params), {{2, 4 / 9.0}, {0, 3 / 9.0}, {3, 2 / 9.0}});
  params.top_p = 0.01;
  expect_distribution(frequencies(kRow, params), {{2, 1.0}});
}

TEST(Sampler, MinPIsAShareOfTheLikeliest) {
  SamplingParams params;
  params.min_p = 0.6;  // 0.24
  expect_distribution(frequencies(kRow, params), {{2, 4 / 7.0}, {0, 3 / 7.0}});
}

// After top_k = 3 the shares are 4/9, 3/9, 2/9; top_p = 0.7 then keeps two (7/9).
TEST(Sampler, TopPCountsWhatTopKLeft) {
  SamplingParams params;
  params.top_k = 3;
  params.top_p = 0.7;
  expect_distribution(frequencies(kRow, params), {{2, 4 / 7.0}, {0, 3 / 7.0}});
}

TEST(Sampler, ReportsTheWholeDistributionsLogProbAndEntropy) {
  SamplingParams params;
  params.top_k = 1;
  const DrawnToken token = draw_token(kRow, params, 4, true, 0.9);
  EXPECT_EQ(token.id, 2);
  EXPECT_NEAR(token.logprob, std::log(0.4), 1e-6);
  EXPECT_NEAR(token.entropy, 1.2798542, 1e-5);  // -sum p ln p
}

TEST(Sampler, NeverDrawsThePaddedTail) {
  expect_distribution(frequencies(kRow, {}, 3), {{0, 3 / 8.0}, {1, 1 / 8.0}, {2, 4 / 8.0}});
  SamplingParams greedy;
  greedy.temperature = 0;
  EXPECT_EQ(draw_token(kRow, greedy, 2, true, 0.5).id, 0);
}

TEST(Sampler, NoEndBeforeMinTokens) {
  SamplingParams params;
  params.eos_ids = {2};
  params.stop_token_ids = {0};
  expect_distribution(frequencies(kRow, params, 4, false), {{1, 1 / 3.0}, {3, 2 / 3.0}});
  expect_distribution(frequencies(kRow, params, 4, true), {{0, 0.3}, {1, 0.1}, {2, 0.4}, {3, 0.2}});
  params.ignore_eos = true;
  expect_distribution(frequencies(kRow, params, 4, false), {{1, 1 / 7.0}, {2, 4 / 7.0}, {3, 2 / 7.0}});
  params.temperature = 0;
  params.ignore_eos = false;
  EXPECT_EQ(draw_token(kRow, params, 4, false, 0.5).id, 3);
  params.eos_ids = {0, 1, 2, 3};
  EXPECT_THROW(draw_token(kRow, params, 4, false, 0.5), DataError);
}

// Relative to the barred end token the others would all be zero in single precision.
TEST(Sampler, DrawsWhatLiesFarBelowABarredToken) {
  SamplingParams params;
  params.eos_ids = {0};
  const std::vector<float> row{200, 1, 1, -std::numeric_limits<float>::infinity()};
  expect_distribution(frequencies(row, params, 4, false), {{1, 0.5}, {2, 0.5}});
  params.top_k = 3;
  expect_distribution(frequencies(row, params, 4, false), {{1, 0.5}, {2, 0.5}});
  EXPECT_THROW(draw_token(std::vector<float>{3, -std::numeric_limits<float>::infinity()}, params, 2, false, 0.5),
               DataError);
}

// SAMP-2. The row is that of the case: logits 2, 1, 0 and impossible ones.
TEST(Sampler, ZeroAndTinyTemperaturesAreArgmax) {
  const std::vector<float> row{2, 1, 0, -10000, -std::numeric_limits<float>::infinity()};
  for (const double temperature : {0.0, 1e-6, 1e-4}) {
    SamplingParams params;
    params.temperature = temperature;
    for (const double uniform : {1e-9, 0.3, 0.999999999}) {
      const DrawnToken token = draw_token(row, params, 5, true, uniform);
      EXPECT_EQ(token.id, 0);
      EXPECT_TRUE(std::isfinite(token.logprob) && std::isfinite(token.entropy)) << temperature;
      if (temperature == 0) {
        EXPECT_NEAR(token.logprob, -0.407606, 1e-6);
      }
    }
  }
  SamplingParams greedy;
  greedy.temperature = 0;
  EXPECT_EQ(draw_token(std::vector<float>{0, 5, 5, 1}, greedy, 4, true, 0.9).id, 1) << "the lowest of equals";
}

TEST(Sampler, BrokenLogitsAreNamed) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  EXPECT_THROW(draw_token(std::vector<float>{nan, nan, nan}, {}, 3, true, 0.5), DataError);
  EXPECT_THROW(draw_token(std::vector<float>{0, inf, 1}, {}, 3, true, 0.5), DataError);
  EXPECT_THROW(draw_token(std::vector<float>{-inf, -inf}, {}, 2, true, 0.5), DataError);
}

TEST(Sampler, RefusesParametersThatMeanNothing) {
  const auto refused = [](auto change, std::string_view name) {
    SamplingParams params;
    change(params);
    expect_names(error_of<ConfigError>([&] { validate(params); }), {name});
  };
  const double nan = std::nan("");
  refused([](auto& p) { p.temperature = -1; }, "temperature");
  refused([&](auto& p) { p.temperature = nan; }, "temperature");
  refused([](auto& p) { p.temperature = 1e-40; }, "temperature");
  refused([](auto& p) { p.top_k = 0; }, "top_k");
  refused([](auto& p) { p.top_p = 0; }, "top_p");
  refused([](auto& p) { p.top_p = 1.5; }, "top_p");
  refused([&](auto& p) { p.top_p = nan; }, "top_p");
  refused([&](auto& p) { p.min_p = nan; }, "min_p");
  refused([](auto& p) { p.max_tokens = 0; }, "max_tokens");
  refused([](auto& p) { p.min_tokens = p.max_tokens + 1; }, "min_tokens");  // ENG-2 (v)
  refused([](auto& p) { p.stop = {"x", ""}; }, "stop");                     // ENG-2 (iv)
  SamplingParams fine;
  validate(fine);
  fine.temperature = 0;
  validate(fine);
}

}  // namespace
}  // namespace tandem
