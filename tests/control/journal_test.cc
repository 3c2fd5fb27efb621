// A journal gives back what was finished, bit for bit, and nothing that is torn, damaged or another run's.
#include "control/journal.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "observe/temp_folder.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

PromptPtr prompt_of(uint64_t id) {
  auto prompt = std::make_shared<Prompt>();
  prompt->id = id;
  prompt->token_ids = {1, 2, static_cast<TokenId>(id)};
  return prompt;
}

TrajectoryPtr sample_of(const PromptPtr& prompt, uint32_t index, uint64_t version) {
  auto t = std::make_shared<Trajectory>();
  t->prompt = prompt;
  t->sample_index = index, t->policy_version = version, t->temperature = 0.7;
  t->response_ids = {5, static_cast<TokenId>(index), -1};
  t->rollout_logprobs = {-0.1F, -std::numeric_limits<float>::infinity(), std::nextafter(-1.F, 0.F)};
  t->response_mask = {1, 0, 1};
  t->stop_reason = StopReason::kStopToken;
  t->mean_entropy = 1.0 / 3;
  return t;
}

struct Session {
  explicit Session(const TempFolder& folder, uint64_t fingerprint = 7)
      : journal({folder / "journal", JournalSync::kStep, fingerprint}) {}

  // A step of two samples of prompt `step`, each with a reward.
  void make(int64_t step, bool commit = true, const std::string& layout = "fsdp4") {
    journal.begin_step(step, layout);
    const PromptPtr prompt = prompt_of(static_cast<uint64_t>(step));
    for (uint32_t i = 0; i < 2; ++i) {
      const TrajectoryPtr t = sample_of(prompt, i, static_cast<uint64_t>(step - 1));
      kept.push_back(t);
      journal.record(false, t);
      journal.record_reward(*t, {0.25 * i, {{"acc", 1.0 * i}, {"x", std::nan("")}}});
    }
    if (commit) journal.commit(static_cast<uint64_t>(step), 2);
  }
  TrajectoryPtr recall(int64_t step, uint32_t index, uint64_t version, const std::string& layout = "fsdp4") {
    journal.begin_step(step, layout);
    TrajectoryPtr t = journal.recall(false, prompt_of(static_cast<uint64_t>(step)), index, version);
    if (t) kept.push_back(t);
    return t;
  }

  Journal journal;
  std::vector<TrajectoryPtr> kept;  // as the store keeps them through a step
};

TEST(Journal, GivesBackWhatWasFinished) {
  const TempFolder folder;
  { Session(folder).make(1, false); }
  Session again(folder);
  EXPECT_EQ(again.journal.samples_after(0), 2U);
  EXPECT_EQ(again.journal.samples_after(1), 0U);
  EXPECT_EQ(again.journal.last_committed(), 0);
  const TrajectoryPtr t = again.recall(1, 1, 0);
  ASSERT_NE(t, nullptr);
  const TrajectoryPtr wanted = sample_of(prompt_of(1), 1, 0);
  EXPECT_EQ(t->response_ids, wanted->response_ids);
  EXPECT_EQ(t->rollout_logprobs, wanted->rollout_logprobs);
  EXPECT_EQ(t->response_mask, wanted->response_mask);
  EXPECT_EQ(t->stop_reason, StopReason::kStopToken);
  EXPECT_EQ(t->temperature, 0.7);
  EXPECT_EQ(t->mean_entropy, 1.0 / 3);
  EXPECT_EQ(t->sample_index, 1U);
  const auto reward = again.journal.recall_reward(*t);
  ASSERT_TRUE(reward.has_value());
  EXPECT_EQ(reward->score, 0.25);
  ASSERT_EQ(reward->extra.size(), 2U);
  EXPECT_EQ(reward->extra[0], (std::pair<std::string, double>{"acc", 1}));
  EXPECT_TRUE(std::isnan(reward->extra[1].second));
  EXPECT_EQ(again.journal.take_metrics().get("perf/journal_recalled_samples"), 1);
}

TEST(Journal, KnowsOnlyTheVerySample) {
  const TempFolder folder;
  { Session(folder).make(1); }
  Session again(folder);
  EXPECT_EQ(again.journal.last_committed(), 1);
  EXPECT_EQ(again.recall(2, 0, 0), nullptr) << "of another step";
  EXPECT_EQ(again.recall(1, 2, 0), nullptr) << "of another sample";
  EXPECT_EQ(again.journal.recall(true, prompt_of(1), 0, 0), nullptr) << "a greedy one";
  EXPECT_EQ(again.recall(1, 0, 3), nullptr) << "of other weights";
  auto other = std::make_shared<Prompt>(*prompt_of(1));
  other->token_ids = {1, 2, 3};
  EXPECT_EQ(again.journal.recall(false, other, 1, 0), nullptr) << "of another text";
  const TrajectoryPtr unknown = sample_of(prompt_of(1), 0, 0);
  EXPECT_EQ(again.journal.recall_reward(*unknown), std::nullopt) << "a sample of validation";
}

TEST(Journal, ForgetsWhatTheWeightsOfAnotherLayoutDrew) {
  const TempFolder folder;
  {
    Session session(folder);
    for (int64_t step = 1; step <= 3; ++step) session.make(step);
  }
  {
    Session session(folder);
    // Back to the state after step 1, with fewer ranks: step 2's samples were drawn by these very weights.
    EXPECT_NE(session.recall(2, 0, 1, "fsdp3"), nullptr);
    EXPECT_EQ(session.journal.last_committed(), 2);
    EXPECT_EQ(session.recall(3, 0, 2, "fsdp3"), nullptr);
  }
  {
    Session again(folder);  // what is forgotten stays so, and what is drawn anew does not
    EXPECT_EQ(again.journal.samples_after(2), 0U);
    again.make(3, true, "fsdp3");
  }
  Session last(folder);
  EXPECT_EQ(last.journal.last_committed(), 3);
  EXPECT_NE(last.recall(2, 1, 1, "fsdp3"), nullptr);
  EXPECT_NE(last.recall(3, 1, 2, "fsdp3"), nullptr);
}

TEST(Journal, CutsWhatAKillLeftUnfinished) {
  const TempFolder folder;
  { Session(folder).make(1, false); }
  const fs::path file = folder / "journal" / "after_0";
  const std::string whole = slurp(file);
  for (size_t cut = 1; cut < whole.size(); cut += 7) {
    spill(file, whole.substr(0, whole.size() - cut));
    Session torn(folder);
    EXPECT_LE(torn.journal.samples_after(0), 2U);
    torn.make(1, false);  // goes on behind the last whole record
    Session again(folder);
    EXPECT_EQ(again.journal.samples_after(0), 2U) << cut;
    EXPECT_NE(again.recall(1, 1, 0), nullptr) << cut;
  }
}

TEST(Journal, ABitThatFlipsCostsItsRecordOnly) {
  const TempFolder folder;
  {
    Session run(folder);
    for (int64_t step = 1; step <= 3; ++step) run.make(step);
  }
  const fs::path file = folder / "journal" / "after_0";
  const std::string whole = slurp(file);
  for (size_t at = 0; at < whole.size(); at += 11) {
    std::string flipped = whole;
    flipped[at] = static_cast<char>(flipped[at] ^ 0x10);
    spill(file, flipped);
    Session again(folder);
    size_t found = 0;
    for (int64_t step = 1; step <= 3; ++step) {
      for (uint32_t i = 0; i < 2; ++i) {
        const TrajectoryPtr t = again.recall(step, i, static_cast<uint64_t>(step - 1));
        if (!t) continue;
        ++found;
        EXPECT_EQ(t->response_ids, sample_of(prompt_of(0), i, 0)->response_ids);
      }
    }
    // The head says whose the file is: without it nothing counts.
    EXPECT_TRUE(found >= 5 || (at < 40 && found == 0)) << "byte " << at << ", " << found;
  }
}

TEST(Journal, AnotherRunsIsSetAside) {
  const TempFolder folder;
  { Session(folder, 7).make(1); }
  Session other(folder, 8);
  EXPECT_TRUE(other.journal.empty());
  EXPECT_TRUE(fs::exists(folder / "journal" / "earlier" / "after_0"));
  other.make(1);
  EXPECT_EQ(Session(folder, 8).journal.samples_after(0), 2U);
}

TEST(Journal, FilesGoWithTheirCheckpoints) {
  const TempFolder folder;
  Session run(folder);
  for (int64_t step = 1; step <= 6; ++step) {
    run.make(step);
    if (step % 2 == 0) run.journal.start_file(step);
  }
  run.make(7);
  const auto has = [&](int after) { return fs::exists(folder / "journal" / ("after_" + std::to_string(after))); };
  const uint64_t before = run.journal.num_bytes();
  run.journal.forget_up_to(5);  // steps 5 and 6 are in one file
  EXPECT_FALSE(has(0) || has(2));
  EXPECT_TRUE(has(4) && has(6));
  EXPECT_LT(run.journal.num_bytes(), before);
  Session again(folder);
  EXPECT_EQ(again.journal.samples_after(0), 6U);
  EXPECT_NE(again.recall(7, 0, 6), nullptr);
  again.journal.remove();
  EXPECT_FALSE(fs::exists(folder / "journal"));
}

TEST(Journal, MakingAStepAnewWritesNothing) {
  const TempFolder folder;
  { Session(folder).make(1); }
  const uint64_t size = fs::file_size(folder / "journal" / "after_0");
  Session again(folder);
  for (uint32_t i = 0; i < 2; ++i) {
    const TrajectoryPtr t = again.recall(1, i, 0);
    again.journal.record_reward(*t, *again.journal.recall_reward(*t));
  }
  again.journal.commit(1, 2);
  EXPECT_EQ(fs::file_size(folder / "journal" / "after_0"), size);
}

TEST(Journal, AFullDiskStopsNothing) {
  const TempFolder folder;
  spill(folder / "journal", "a file where the folder should be");
  Session run(folder);
  run.make(1);
  EXPECT_EQ(run.journal.take_metrics().get("perf/journal_failed_writes"), 6);
  fs::remove(folder / "journal");
  run.make(2);
  EXPECT_EQ(Session(folder).journal.samples_after(0), 2U);
}

}  // namespace
}  // namespace tandem
