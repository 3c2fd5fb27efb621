#include "data/loader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>

#include "base/error.h"
#include "data/expect_error.h"

namespace tandem {
namespace {

PromptDataset make_dataset(int rows) {
  const auto path = std::filesystem::path(testing::TempDir()) / ("loader" + std::to_string(rows) + ".jsonl");
  std::ofstream file(path);
  for (int i = 0; i < rows; ++i) file << R"({"prompt": [{"role": "user", "content": "x"}]})" << '\n';
  file.close();
  DatasetOptions options;
  options.files = {path};
  options.scored = false;
  return PromptDataset(options, [](const std::vector<Message>&) { return std::vector<TokenId>{1, 2}; });
}

std::vector<uint64_t> ids_of(const PromptBatch& batch) {
  std::vector<uint64_t> ids;
  for (const auto& prompt : batch.prompts) ids.push_back(prompt->id);
  return ids;
}

TEST(Loader, GivesFileOrderWithoutShuffle) {
  const auto dataset = make_dataset(7);
  PromptLoader loader(dataset, {.batch_size = 3, .shuffle = false});
  EXPECT_EQ(loader.batches_per_epoch(), 2u);
  EXPECT_EQ(ids_of(loader.next()), (std::vector<uint64_t>{0, 1, 2}));
  EXPECT_EQ(ids_of(loader.next()), (std::vector<uint64_t>{3, 4, 5}));
  const auto third = loader.next();  // row 6 is dropped
  EXPECT_EQ(third.epoch, 1u);
  EXPECT_EQ(third.index_in_epoch, 0u);
  EXPECT_EQ(ids_of(third), (std::vector<uint64_t>{0, 1, 2}));
}

TEST(Loader, KeepsTheShortTailWhenAsked) {
  const auto dataset = make_dataset(7);
  PromptLoader loader(dataset, {.batch_size = 3, .shuffle = false, .drop_last = false});
  EXPECT_EQ(loader.batches_per_epoch(), 3u);
  loader.next(), loader.next();
  EXPECT_EQ(ids_of(loader.next()), (std::vector<uint64_t>{6}));
  PromptLoader whole(dataset, {.batch_size = 100, .shuffle = false, .drop_last = false});
  EXPECT_EQ(whole.next().prompts.size(), 7u);
}

TEST(Loader, AnEpochHoldsEveryPromptOnceInAnOrderOfItsOwn) {
  const auto dataset = make_dataset(20);
  PromptLoader loader(dataset, {.batch_size = 5, .seed = 3});
  std::vector<std::vector<uint64_t>> epochs(3);
  for (auto& epoch : epochs) {
    for (int b = 0; b < 4; ++b)
      for (const uint64_t id : ids_of(loader.next())) epoch.push_back(id);
    auto sorted = epoch;
    std::sort(sorted.begin(), sorted.end());
    for (uint64_t i = 0; i < 20; ++i) EXPECT_EQ(sorted[i], i);
  }
  EXPECT_NE(epochs[0], epochs[1]);
  EXPECT_NE(epochs[1], epochs[2]);
}

TEST(Loader, ShufflesUniformly) {
  std::map<std::vector<size_t>, int> seen;
  for (uint64_t epoch = 0; epoch < 6000; ++epoch) ++seen[epoch_order(3, 42, epoch, true)];
  ASSERT_EQ(seen.size(), 6u);
  for (const auto& [order, count] : seen) EXPECT_NEAR(count, 1000, 145);  // five standard deviations
}

TEST(Loader, ResumesExactlyAnywhere) {
  const auto dataset = make_dataset(23);
  const LoaderOptions options{.batch_size = 4, .seed = 9, .prefetch = 3};
  PromptLoader whole(dataset, options);
  std::vector<LoaderState> states;
  std::vector<std::vector<uint64_t>> batches;
  for (int i = 0; i < 17; ++i) {
    states.push_back(whole.state());
    batches.push_back(ids_of(whole.next()));
  }
  EXPECT_EQ(states[6].epoch, 1u);
  EXPECT_EQ(states[6].next_batch_in_epoch, 1u);
  for (size_t start = 0; start < states.size(); ++start) {
    PromptLoader resumed(dataset, options, states[start]);
    EXPECT_EQ(resumed.state(), states[start]);
    for (size_t i = start; i < batches.size(); ++i) EXPECT_EQ(ids_of(resumed.next()), batches[i]);
  }
}

TEST(Loader, RefusesTooFewPrompts) {
  const auto dataset = make_dataset(7);
  expect_error<DataError>([&] { PromptLoader(dataset, {.batch_size = 8}); }, {"7 prompts", "one batch of 8"});
  expect_error<ConfigError>([&] { PromptLoader(dataset, {.batch_size = 0}); }, {"batch size"});
}

TEST(Loader, RefusesAPlaceInOtherData) {
  const auto seven = make_dataset(7), eight = make_dataset(8);
  const LoaderState state = PromptLoader(seven, {.batch_size = 2}).state();
  expect_error<DataError>([&] { PromptLoader(eight, {.batch_size = 2}, state); }, {"other data"});
  expect_error<DataError>([&] { PromptLoader(seven, {.batch_size = 3}, state); }, {"other data"});
  expect_error<DataError>([&] { PromptLoader(seven, {.batch_size = 2}, {0, 3}); }, {"batch 3", "has 3"});
}

TEST(Loader, SharesBatchesAmongThreadsAndStopsAtAnyTime) {
  const auto dataset = make_dataset(64);
  for (int repeat = 0; repeat < 20; ++repeat) {
    PromptLoader loader(dataset, {.batch_size = 1, .prefetch = 2});
    std::mutex mutex;
    std::vector<uint64_t> seen;
    {
      std::vector<std::jthread> threads;
      for (int t = 0; t < 4; ++t)
        threads.emplace_back([&] {
          for (int i = 0; i < 16; ++i) {
            const auto ids = ids_of(loader.next());
            loader.state();
            const std::lock_guard lock(mutex);
            seen.push_back(ids.at(0));
          }
        });
    }
    std::sort(seen.begin(), seen.end());
    for (uint64_t i = 0; i < 64; ++i) ASSERT_EQ(seen[i], i);
    EXPECT_EQ(loader.state().epoch, 1u);
    EXPECT_GE(loader.seconds_waited(), 0.0);
  }
  for (int repeat = 0; repeat < 50; ++repeat) PromptLoader(dataset, {.batch_size = 1});
}

}  // namespace
}  // namespace tandem
