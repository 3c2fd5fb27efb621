#include "rollout/scheduler.h"

#include <gtest/gtest.h>

#include <numeric>

namespace tandem {
namespace {

SequencePtr sequence(int64_t prompt_length, TokenId first = 0) {
  auto prompt = std::make_shared<Prompt>();
  prompt->token_ids.resize(static_cast<size_t>(prompt_length));
  std::iota(prompt->token_ids.begin(), prompt->token_ids.end(), first);
  auto request = std::make_shared<GenerationRequest>();
  request->prompt = prompt;
  auto made = std::make_unique<Sequence>();
  made->request = request;
  made->tokens = prompt->token_ids;
  return made;
}

std::vector<int64_t> sizes(const std::vector<ScheduledSequence>& pass) {
  std::vector<int64_t> all;
  for (const auto& scheduled : pass) all.push_back(scheduled.num_tokens);
  return all;
}

// As after a forward pass: a token is drawn for each sequence that is through.
void complete(Scheduler& scheduler, const std::vector<ScheduledSequence>& pass) {
  scheduler.mark_computed(pass);
  for (const auto& [s, count] : pass)
    if (s->num_to_compute() == 0) s->tokens.push_back(7000 + static_cast<TokenId>(s->num_tokens()));
}

using Sizes = std::vector<int64_t>;

TEST(Scheduler, PromptsEnterInPiecesOfTheBudget) {
  BlockManager blocks(100, false);
  Scheduler scheduler({8, 10, true}, blocks);
  scheduler.add(sequence(25));
  scheduler.add(sequence(4));
  const Sizes expected[] = {{10}, {10}, {5, 4}, {1, 1}};
  for (const Sizes& sizes_expected : expected) {
    const auto pass = scheduler.schedule();
    EXPECT_EQ(sizes(pass), sizes_expected);
    complete(scheduler, pass);
  }
}

TEST(Scheduler, RunningSequencesGoBeforeNewPrompts) {
  BlockManager blocks(100, false);
  Scheduler scheduler({8, 10, true}, blocks);
  for (int i = 0; i < 3; ++i) scheduler.add(sequence(3));
  complete(scheduler, scheduler.schedule());
  scheduler.add(sequence(30));
  const auto pass = scheduler.schedule();
  EXPECT_EQ(sizes(pass), (Sizes{1, 1, 1, 7}));
}

TEST(Scheduler, WholePromptsWaitForRoomAndEnterAlone) {
  BlockManager blocks(100, false);
  Scheduler scheduler({8, 10, false}, blocks);
  scheduler.add(sequence(6));
  scheduler.add(sequence(6));
  scheduler.add(sequence(25));  // longer than a pass: taken alone, else it could never start
  auto pass = scheduler.schedule();
  EXPECT_EQ(sizes(pass), Sizes{6});
  complete(scheduler, pass);
  pass = scheduler.schedule();
  EXPECT_EQ(sizes(pass), (Sizes{1, 6}));
  complete(scheduler, pass);
  scheduler.remove(pass[0].sequence);
  scheduler.remove(pass[1].sequence);
  EXPECT_EQ(sizes(scheduler.schedule()), Sizes{25});
}

TEST(Scheduler, MaxNumSeqsHolds) {
  BlockManager blocks(100, false);
  Scheduler scheduler({2, 100, true}, blocks);
  for (int i = 0; i < 3; ++i) scheduler.add(sequence(4));
  const auto pass = scheduler.schedule();
  EXPECT_EQ(sizes(pass), (Sizes{4, 4}));
  EXPECT_FALSE(scheduler.add_running(sequence(4)));
  EXPECT_EQ(scheduler.num_waiting(), 2);
  scheduler.mark_computed(pass);
  EXPECT_NE(scheduler.remove(pass[0].sequence), nullptr);
  EXPECT_EQ(scheduler.num_running(), 1);
}

// Two blocks, two sequences of 16 tokens: the 17th token of the first takes the second's block.
TEST(Scheduler, TheLatestIsSetBackAndComesFirstAgain) {
  BlockManager blocks(2, false);
  Scheduler scheduler({8, 100, true}, blocks);
  scheduler.add(sequence(16, 0));
  scheduler.add(sequence(16, 100));
  scheduler.add(sequence(16, 200));
  auto pass = scheduler.schedule();
  Sequence* first = pass[0].sequence;
  Sequence* second = pass[1].sequence;
  complete(scheduler, pass);
  pass = scheduler.schedule();
  ASSERT_EQ(pass.size(), 1U);
  EXPECT_EQ(pass[0].sequence, first);
  EXPECT_EQ(scheduler.num_preempted(), 1);
  EXPECT_EQ(second->num_computed, 0);
  EXPECT_TRUE(second->blocks.empty());
  complete(scheduler, pass);
  scheduler.remove(first);
  pass = scheduler.schedule();
  ASSERT_EQ(pass.size(), 1U) << "17 tokens need both blocks";
  EXPECT_EQ(pass[0].sequence, second) << "before the one that has never run";
  EXPECT_EQ(pass[0].num_tokens, 17) << "its drawn token is kept and computed again";
  EXPECT_EQ(blocks.num_free(), 0);
}

TEST(Scheduler, NoBlockIsLostWhenAllIsDone) {
  BlockManager blocks(6, true);
  Scheduler scheduler({8, 20, true}, blocks);
  for (int i = 0; i < 5; ++i) scheduler.add(sequence(20 + i, i / 2));
  int passes = 0;
  while (!scheduler.empty()) {
    ASSERT_LT(++passes, 500);
    const auto pass = scheduler.schedule();
    complete(scheduler, pass);
    for (const auto& [s, count] : pass)
      if (s->response_length() >= 30) scheduler.remove(s);
  }
  EXPECT_GT(scheduler.num_preempted(), 0);
  EXPECT_EQ(blocks.num_free(), 6);
}

TEST(Scheduler, TheLastTokenIsComputedEvenWhenAllIsCached) {
  BlockManager blocks(10, true);
  Scheduler scheduler({8, 100, true}, blocks);
  scheduler.add(sequence(32));
  auto pass = scheduler.schedule();
  complete(scheduler, pass);
  scheduler.remove(pass[0].sequence);
  scheduler.add(sequence(32));
  pass = scheduler.schedule();
  EXPECT_EQ(sizes(pass), Sizes{16});
  EXPECT_EQ(scheduler.num_cached_tokens(), 16);
}

TEST(Scheduler, APromptBeingComputedIsNotComputedBesideItself) {
  BlockManager blocks(20, true);
  Scheduler scheduler({8, 100, true}, blocks);
  scheduler.add(sequence(40));
  scheduler.add(sequence(40));
  auto pass = scheduler.schedule();
  EXPECT_EQ(sizes(pass), Sizes{40});
  complete(scheduler, pass);
  EXPECT_EQ(sizes(scheduler.schedule()), (Sizes{1, 8}));
  EXPECT_EQ(scheduler.num_cached_tokens(), 32);
}

}  // namespace
}  // namespace tandem
