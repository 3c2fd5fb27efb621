#include "control/worker_group.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace tandem {
namespace {

// Groups of 1, 2, 3, 1, 2, 3 ... samples.
RolloutBatch batch_of(uint32_t num_groups) {
  RolloutBatch batch;
  for (uint32_t group = 0; group < num_groups; ++group) {
    for (uint32_t i = 0; i <= group % 3; ++i) {
      Sample sample;
      sample.group = group;
      sample.sample_index = i;
      sample.handle = batch.size() + 1;
      batch.push_back(sample);
    }
  }
  return batch;
}

bool same(const RolloutBatch& a, const RolloutBatch& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const Sample& x, const Sample& y) { return x.handle == y.handle && x.group == y.group; });
}

// The largest group has 3 samples, so no part may be further than that from its fair share.
TEST(Dispatch, SplitsBetweenGroupsAndMergesBack) {
  for (uint32_t groups = 0; groups < 12; ++groups) {
    const RolloutBatch whole = batch_of(groups);
    for (size_t n = 1; n <= 5; ++n) {
      const auto parts = Dispatch<RolloutBatch>::split(whole, n);
      ASSERT_EQ(parts.size(), n);
      const RolloutBatch* last = nullptr;
      for (const auto& part : parts) {
        if (part.empty()) continue;
        EXPECT_TRUE(last == nullptr || last->back().group != part.front().group) << groups << " groups over " << n;
        EXPECT_LE(part.size(), whole.size() / n + 3);
        last = &part;
      }
      EXPECT_TRUE(same(Dispatch<RolloutBatch>::merge(parts), whole)) << groups << " groups over " << n;
    }
  }
}

TEST(Dispatch, EqualGroupsAreSplitEvenly) {
  RolloutBatch whole(24);
  for (uint32_t i = 0; i < 24; ++i) whole[i].group = i / 2;
  for (const size_t n : {1U, 2U, 3U, 4U})
    for (const auto& part : Dispatch<RolloutBatch>::split(whole, n)) EXPECT_EQ(part.size(), 24 / n);
}

TEST(Dispatch, PromptsKeepTheirOrder) {
  for (size_t count = 0; count < 9; ++count) {
    PromptList whole;
    for (size_t i = 0; i < count; ++i) whole.push_back(std::make_shared<Prompt>(Prompt{.id = i}));
    for (size_t n = 1; n <= 5; ++n) {
      PromptList joined;
      for (const auto& part : Dispatch<PromptList>::split(whole, n)) {
        EXPECT_LE(part.size(), (count + n - 1) / n);
        joined.insert(joined.end(), part.begin(), part.end());
      }
      EXPECT_EQ(joined, whole);
    }
  }
}

class Stub {
 public:
  explicit Stub(int rank) : rank_(rank) {}

  // As an engine does: two samples a prompt, its own groups from 0.
  RolloutBatch generate(const PromptList& prompts) {
    RolloutBatch batch;
    for (uint32_t i = 0; i < prompts.size(); ++i)
      for (uint32_t k = 0; k < 2; ++k) {
        Sample sample;
        sample.prompt_id = prompts[i]->id;
        sample.sample_index = k;
        sample.group = i;
        batch.push_back(sample);
      }
    calls_ += 1;
    return batch;
  }
  RolloutBatch score(const RolloutBatch& batch) {
    RolloutBatch out = batch;
    for (Sample& sample : out) sample.score = rank_;
    return out;
  }
  RolloutBatch fail_odd(const RolloutBatch& batch) {
    std::this_thread::sleep_for(std::chrono::milliseconds(rank_ == 1 ? 30 : 1));
    if (rank_ % 2 == 1) throw DataError("worker " + std::to_string(rank_));
    calls_ += 1;
    return batch;
  }
  int calls() const { return calls_; }

 private:
  int rank_;
  std::atomic<int> calls_ = 0;
};

WorkerGroup<Stub> group_of(int size, CallObserver observer = {}) {
  std::vector<std::shared_ptr<Stub>> workers;
  for (int rank = 0; rank < size; ++rank) workers.push_back(std::make_shared<Stub>(rank));
  return WorkerGroup<Stub>(std::move(workers), observer);
}

TEST(WorkerGroup, TheResultDoesNotDependOnItsSize) {
  PromptList prompts;
  for (uint64_t i = 0; i < 7; ++i) prompts.push_back(std::make_shared<Prompt>(Prompt{.id = 100 + i}));
  for (int size = 1; size <= 5; ++size) {
    auto group = group_of(size);
    const RolloutBatch drawn = group.call<&Stub::generate>("gen", prompts);
    ASSERT_EQ(drawn.size(), 14U);
    for (size_t i = 0; i < drawn.size(); ++i) {
      EXPECT_EQ(drawn[i].prompt_id, 100 + i / 2);
      EXPECT_EQ(drawn[i].group, i / 2) << "over " << size << " workers";
    }
    for (int rank = 0; rank < size; ++rank) EXPECT_EQ(group.worker(static_cast<size_t>(rank)).calls(), 1);
    const RolloutBatch scored = group.call<&Stub::score>("reward", drawn);
    ASSERT_EQ(scored.size(), 14U);
    EXPECT_EQ(scored.front().score, 0);
    EXPECT_EQ(scored.back().score, size - 1) << "the last part went to the last worker";
  }
}

TEST(WorkerGroup, TheLowestRanksErrorComesOutAfterAllHaveEnded) {
  auto group = group_of(4);
  try {
    group.call<&Stub::fail_odd>("gen", batch_of(8));
    FAIL() << "nothing was thrown";
  } catch (const DataError& error) {
    EXPECT_STREQ(error.what(), "worker 1");
  }
  EXPECT_EQ(group.worker(0).calls() + group.worker(2).calls(), 2);
  EXPECT_EQ(group.call<&Stub::score>("reward", batch_of(8)).size(), batch_of(8).size()) << "it can be used again";
}

TEST(WorkerGroup, CallsAreTimedByPhase) {
  PhaseTimer timer;
  auto group = group_of(3, {&timer, nullptr});
  EXPECT_ANY_THROW(group.call<&Stub::fail_odd>("slow", batch_of(6)));
  EXPECT_GE(timer.seconds("slow"), 0.03) << "also when it fails";
  EXPECT_EQ(timer.seconds("other"), 0);
  const double before = timer.seconds("slow");
  EXPECT_EQ(timer.seconds("slow"), before) << "it is closed";
}

TEST(WorkerGroup, NeedsAWorker) { EXPECT_ANY_THROW(WorkerGroup<Stub>({})); }

}  // namespace
}  // namespace tandem
