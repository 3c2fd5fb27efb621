// Dynamic sampling: exact refills, bounds, and what a group's metric is.
#include "programs/collector.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "programs/tiny_run.h"

namespace tandem {
namespace {

struct Filtered {
  explicit Filtered(std::string pattern, CollectOptions changes = {}, uint64_t wrap = UINT64_MAX) {
    changes.prompts_per_step = 5, changes.filter_groups = true;
    if (changes.num_train_prompts == 0) changes.num_train_prompts = 1000;
    collector.emplace(changes, *run.actor, *run.reward);
    source = run.source(std::move(pattern), wrap);
  }
  ScoredBatch collect() { return collector->collect(source); }
  TinyRun run;
  std::optional<Collector> collector;
  PromptSource source;
};

TEST(Collector, RefillsExactly) {
  Filtered filtered("ABB");
  filtered.collector.emplace(
      CollectOptions{
          .prompts_per_step = 5, .filter_groups = true, .filter_metric = "seq_reward", .num_train_prompts = 99},
      *filtered.run.actor, *filtered.run.reward);
  const ScoredBatch batch = filtered.collect();
  ASSERT_EQ(batch.samples.size(), 20U);
  ASSERT_EQ(batch.extras.size(), 20U);
  uint64_t last = 0;
  for (size_t g = 0; g < 5; ++g) {
    double sum = 0;
    for (size_t i = 4 * g; i < 4 * g + 4; ++i) {
      const Sample& sample = batch.samples[i];
      EXPECT_EQ(sample.group, g);
      EXPECT_EQ(sample.sample_index, i - 4 * g);
      EXPECT_EQ(sample.prompt_id % 3, 0U);  // those that end in A
      EXPECT_EQ(batch.extras[i][0].second, sample.score);
      sum += sample.score;
    }
    EXPECT_TRUE(sum > 0 && sum < 4) << g;
    EXPECT_TRUE(g == 0 || batch.samples[4 * g].prompt_id > last);
    last = batch.samples[4 * g].prompt_id;
  }
  // Nothing was taken beyond what the last missing group needed.
  const Metrics metrics = filtered.collector->metrics();
  EXPECT_EQ(metrics.get("training/num_gen_prompts"), static_cast<double>(filtered.run.given));
  EXPECT_EQ(metrics.get("training/filtered_groups"), static_cast<double>(filtered.run.given - 5));
  EXPECT_GT(metrics.get("training/num_gen_batches").value(), 1);
}

std::string error_of_collect(Filtered& filtered) {
  try {
    filtered.collect();
  } catch (const DataError& error) {
    return error.what();
  }
  return "";
}

TEST(Collector, SaysWhenEveryGroupIsFiltered) {
  Filtered bounded("B", {.max_num_gen_batches = 3});
  const std::string text = error_of_collect(bounded);
  EXPECT_NE(text.find("after 3 draws of 15 prompts only 0 of 5 groups differ in acc"), std::string::npos) << text;
  Filtered all("B", {.num_train_prompts = 12}, 12);  // no bound: the data has 12 prompts
  const std::string used_up = error_of_collect(all);
  EXPECT_NE(used_up.find("of 12 prompts only 0 of 5 groups differ in acc and the data is used up"), std::string::npos)
      << used_up;
}

TEST(Collector, APromptThatComesAgainIsNotDrawnAgain) {
  Filtered wrapped("A", {.num_train_prompts = 6}, 6);
  const ScoredBatch batch = wrapped.collect();
  std::set<uint64_t> ids;
  for (const Sample& sample : batch.samples) ids.insert(sample.prompt_id);
  EXPECT_EQ(ids.size(), 5U);
}

TEST(Collector, AStepAcrossTheEndOfTheDataHasEachPromptOnce) {
  Filtered filtered("AB", {}, 6);
  filtered.collector.emplace(CollectOptions{.prompts_per_step = 4}, *filtered.run.actor, *filtered.run.reward);
  for (int step = 0; step < 3; ++step) {
    std::set<uint64_t> prompts;
    const ScoredBatch batch = filtered.collect();
    for (const Sample& sample : batch.samples) prompts.insert(sample.prompt_id);
    EXPECT_EQ(prompts.size(), 4U) << step;
    EXPECT_EQ(batch.samples.size(), 16U) << step;
  }
}

TEST(Collector, MetricsByName) {
  Filtered by_key("A", {.filter_metric = "x"});
  EXPECT_EQ(by_key.collect().samples.size(), 20U);
  Filtered equal_key("A", {.filter_metric = "length", .max_num_gen_batches = 2});
  EXPECT_NE(error_of_collect(equal_key).find("differ in length"), std::string::npos);
  Filtered unknown("A", {.filter_metric = "colour"});
  EXPECT_NE(error_of_collect(unknown).find("colour"), std::string::npos);
}

TEST(Collector, GreedyBaselines) {
  TinyRun run({}, {}, {}, false, -0.5);  // x is likelier after A, so the greedy response has reward 1
  Collector collector({.prompts_per_step = 3, .greedy_baseline = true}, *run.actor, *run.reward);
  const ScoredBatch batch = collector.collect(run.source("A"));
  ASSERT_EQ(batch.samples.size(), 12U);
  double sum = 0;
  for (const Sample& sample : batch.samples) {
    EXPECT_EQ(sample.baseline, 1);
    sum += sample.score;
  }
  EXPECT_LT(sum, 12);
}

}  // namespace
}  // namespace tandem
