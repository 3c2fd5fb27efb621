#include "reward/reward.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error.h"
#include "data/expect_error.h"
#include "reward/overlong.h"

namespace tandem {
namespace {

TEST(Dispatch, FollowsVerlsTable) {
  const std::pair<const char*, const char*> table[] = {
      {"openai/gsm8k", "gsm8k"},
      {"lighteval/MATH", "math"},
      {"HuggingFaceH4/MATH-500", "math"},
      {"DigitalLearningGmbH/MATH-lighteval", "math"},
      {"math_dapo", "math_dapo"},
      {"math", "math_dapo"},
      {"math_dapo_reasoning", "math_dapo"},
      {"aime2024", "math_dapo"},
      {"tandem/arithmetic", "exact"},
      {"countdown", "countdown"},
      {"ChilleD/SVAMP", "gsm8k"},
  };
  for (const auto& [source, rule] : table) EXPECT_EQ(rule_for_data_source(source), rule);
  expect_error<DataError>([] { rule_for_data_source("openai/gsm9k"); },
                          {"'openai/gsm9k'", "openai/gsm8k", "reward.custom_reward_function"});
}

TEST(RuleReward, ScoresEachSampleByItsSource) {
  const std::vector<RewardRequest> requests = {
      {.data_source = "openai/gsm8k", .solution_str = "#### 4", .ground_truth = "4"},
      {.data_source = "lighteval/MATH", .solution_str = "#### 4", .ground_truth = "4"},
      {.data_source = "aime2025", .solution_str = "Answer: 4", .ground_truth = "4"},
  };
  const auto results = make_reward({})->score(requests);
  ASSERT_EQ(results.size(), 3u);
  EXPECT_EQ(results[0].score, 1);
  EXPECT_EQ(results[1].score, 0);
  EXPECT_EQ(results[2].score, 1);
  EXPECT_EQ(make_reward({.rule = "gsm8k"})->score(requests)[1].score, 1);
}

TEST(RuleReward, RefusesUnknownRulesAndSources) {
  expect_error<ConfigError>([] { make_reward({.rule = "gsm9k"}); }, {"reward.rule=gsm9k", "math_dapo"});
  const std::vector<RewardRequest> requests = {{.data_source = "x", .solution_str = "1", .ground_truth = "1"}};
  expect_error<DataError>([&] { make_reward({})->score(requests); }, {"'x'"});
}

TEST(CheckScore, NamesTheSample) {
  const RewardRequest request{.data_source = "s", .prompt_id = 17, .sample_index = 2};
  check_score(-1e300, request);
  for (const double bad : {std::nan(""), std::numeric_limits<double>::infinity()})
    expect_error<DataError>([&] { check_score(bad, request); }, {"sample 2 of prompt 17", "finite"});
}

TEST(Overlong, FallsLinearlyOverTheBuffer) {
  const OverlongOptions options{.enable = true, .len = 20, .penalty_factor = 1, .max_response_length = 100};
  check_overlong(options);
  const std::pair<int, double> cases[] = {{5, 0}, {79, 0}, {80, 0}, {81, -0.05}, {90, -0.5}, {99, -0.95}, {100, -1}};
  for (const auto& [length, penalty] : cases) EXPECT_DOUBLE_EQ(overlong_penalty(options, length), penalty) << length;
}

TEST(Overlong, RefusesABufferThatDoesNotFit) {
  check_overlong({.enable = false, .len = 20});
  EXPECT_EQ(overlong_penalty({.enable = false, .len = 20}, 1000), 0);
  for (const int64_t len : {0, 100, 120})
    expect_error<ConfigError>([&] { check_overlong({.enable = true, .len = len, .max_response_length = 100}); },
                              {"overlong_buffer_cfg.len=" + std::to_string(len), "100"});
  expect_error<ConfigError>(
      [] { check_overlong({.enable = true, .len = 10, .penalty_factor = -1, .max_response_length = 100}); },
      {"penalty_factor=-1"});
}

}  // namespace
}  // namespace tandem
