#include "reward/reward_worker.h"

#include <gtest/gtest.h>

#include <thread>
#include <utility>

#include "base/error.h"
#include "data/expect_error.h"

namespace tandem {
namespace {

// Scores a response by its length; one that says "bad" cannot be scored. Remembers what it was asked, in order.
class Lengths final : public RewardFunction {
 public:
  explicit Lengths(std::vector<RewardRequest>* asked, std::chrono::milliseconds delay = {})
      : asked_(asked), delay_(delay) {}

  std::future<RewardResult> submit(RewardRequest request) override {
    asked_->push_back(request);
    ++since_report_;
    return std::async(std::launch::async, [request, delay = delay_]() -> RewardResult {
      std::this_thread::sleep_for(delay);
      if (request.solution_str == "bad") throw DataError(sample_name(request) + ": bad");
      return {static_cast<double>(request.solution_str.size()), {{"acc", 1}}};
    });
  }
  Metrics take_metrics() override {
    Metrics metrics;
    metrics.set("asked", static_cast<double>(std::exchange(since_report_, 0)));
    return metrics;
  }

 private:
  std::vector<RewardRequest>* asked_;
  std::chrono::milliseconds delay_;
  size_t since_report_ = 0;
};

// Every result that is still kept shares `kept`.
class Kept final : public RewardFunction {
 public:
  explicit Kept(std::shared_ptr<int> kept) : kept_(std::move(kept)) {}

  std::future<RewardResult> submit(RewardRequest) override {
    return std::async(std::launch::deferred, [kept = kept_]() -> RewardResult { return {1, {}}; });
  }

 private:
  std::shared_ptr<int> kept_;
};

class RewardWorkerTest : public testing::Test {
 protected:
  TrajectoryPtr draw(const std::string& text, uint32_t index) {
    auto trajectory = std::make_shared<Trajectory>();
    trajectory->prompt = prompt_;
    trajectory->sample_index = index;
    trajectory->response_ids = tokenizer_.encode(text);
    trajectory->stop_reason = StopReason::kEndOfText;
    return trajectory;
  }
  Sample sample(const TrajectoryPtr& trajectory) {
    return {.handle = store_->put(trajectory), .prompt_id = 7, .sample_index = trajectory->sample_index};
  }

  const Tokenizer tokenizer_ = Tokenizer::from_folder(std::filesystem::path(TANDEM_TEST_DATA) / "text" / "toy");
  const PromptPtr prompt_ = std::make_shared<Prompt>(
      Prompt{.id = 7, .messages = {{"user", "Say it."}}, .data_source = "src", .ground_truth = "4"});
  std::shared_ptr<TrajectoryStore> store_ = std::make_shared<TrajectoryStore>();
  std::vector<RewardRequest> asked_;
};

TEST_F(RewardWorkerTest, WhatWasSubmittedIsNotAskedAgain) {
  RewardWorker reward(std::make_unique<Lengths>(&asked_), store_, tokenizer_, {});
  const auto a = draw("a", 0), bb = draw("bb", 1), ccc = draw("ccc", 2);
  reward.submit(ccc);
  reward.submit(a);
  const ScoredBatch scored = reward.score({sample(a), sample(bb), sample(ccc)});
  ASSERT_EQ(scored.samples.size(), 3u);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(scored.samples[i].score, i + 1);
  EXPECT_EQ(scored.extras[2], (std::vector<std::pair<std::string, double>>{{"acc", 1}}));
  ASSERT_EQ(asked_.size(), 3u);
  EXPECT_EQ(asked_[0].solution_str, "ccc");
  EXPECT_EQ(asked_[0].sample_index, 2u);
  EXPECT_EQ(asked_[0].prompt_id, 7u);
  EXPECT_EQ(asked_[0].messages.at(0).content, "Say it.");
  EXPECT_TRUE(asked_[0].finished);
  EXPECT_EQ(asked_[2].solution_str, "bb");
}

// A step may ask for scores several times.
TEST_F(RewardWorkerTest, AReportIsOfAllScoresSinceTheLastOne) {
  RewardWorker reward(std::make_unique<Lengths>(&asked_), store_, tokenizer_, {});
  const auto a = draw("a", 0), bb = draw("bb", 1), ccc = draw("ccc", 2);
  reward.submit(a);
  reward.score({sample(a), sample(bb)});
  reward.score({sample(ccc)});
  EXPECT_EQ(reward.take_report().get("asked"), 3);
  reward.score({sample(ccc)});
  EXPECT_EQ(reward.take_report().get("asked"), 1);
}

// DATA-2: a limit of 100 tokens with a buffer of 20, whatever the prompt's length.
TEST_F(RewardWorkerTest, OverlongResponsesLoseByTheirOwnLength) {
  RewardWorker reward(std::make_unique<Kept>(nullptr), store_, tokenizer_,
                      {.enable = true, .len = 20, .penalty_factor = 1, .max_response_length = 100});
  for (const size_t prompt_length : {5, 50}) {
    auto prompt = std::make_shared<Prompt>(*prompt_);
    prompt->token_ids.assign(prompt_length, 1);
    RolloutBatch batch;
    const std::pair<uint32_t, double> cases[] = {{79, 1}, {80, 1}, {81, 0.95}, {90, 0.5}, {99, 0.05}, {100, 0}};
    for (const auto& [length, total] : cases) {
      auto trajectory = std::make_shared<Trajectory>();
      trajectory->prompt = prompt;
      trajectory->response_ids.assign(length, 1);
      batch.push_back(sample(trajectory));
      batch.back().prompt_length = static_cast<uint32_t>(prompt_length), batch.back().response_length = length;
    }
    const ScoredBatch scored = reward.score(batch);
    for (size_t i = 0; i < batch.size(); ++i) {
      EXPECT_EQ(scored.samples[i].score, 1);  // what the verifier said stays
      EXPECT_NEAR(scored.samples[i].reward, cases[i].second, 1e-12) << cases[i].first;
    }
  }
}

TEST_F(RewardWorkerTest, AnEarlyFailureIsThrownWhenItsSampleIsScored) {
  RewardWorker reward(std::make_unique<Lengths>(&asked_), store_, tokenizer_, {});
  const auto bad = draw("bad", 1), fine = draw("fine", 0);
  reward.submit(bad);
  EXPECT_EQ(reward.score({sample(fine)}).samples[0].score, 4);
  expect_error<DataError>([&] { reward.score({sample(fine), sample(bad)}); }, {"sample 1 of prompt 7"});
}

TEST_F(RewardWorkerTest, ResponsesNobodyAsksForAreForgotten) {
  const auto kept = std::make_shared<int>();
  RewardWorker reward(std::make_unique<Kept>(kept), store_, tokenizer_, {});
  const auto nobody_asked = kept.use_count();
  const auto asked_for = draw("asked", 0), later = draw("later", 1);
  for (uint32_t i = 2; i < 5; ++i) reward.submit(draw("dropped", i));
  reward.submit(later);
  EXPECT_EQ(kept.use_count(), nobody_asked + 4);
  reward.score({sample(asked_for)});
  EXPECT_EQ(kept.use_count(), nobody_asked + 1);  // of the response that is still there
}

TEST_F(RewardWorkerTest, WarnsOnceWhenTheStepWaits) {
  RewardWorker reward(std::make_unique<Lengths>(&asked_, std::chrono::milliseconds(1100)), store_, tokenizer_, {});
  const auto a = draw("a", 0);
  testing::internal::CaptureStderr();
  reward.score({sample(a)});
  const double stall = reward.take_report().get("perf/reward_stall_s").value();
  EXPECT_TRUE(stall >= 1.1 && stall < 2) << stall;
  EXPECT_EQ(reward.take_report().get("perf/reward_stall_s"), 0) << "it was told already";
  reward.score({sample(a)});
  reward.take_report();
  const std::string told = testing::internal::GetCapturedStderr();
  const size_t first = told.find("waited 1.1 s for rewards");
  EXPECT_NE(first, std::string::npos) << told;
  EXPECT_EQ(told.find("waited", first + 6), std::string::npos) << told;
}

// As soon as one is known to fail, whatever else is still being scored; those that succeed say nothing.
TEST_F(RewardWorkerTest, AFailureIsToldAtOnce) {
  RewardWorker reward(std::make_unique<Lengths>(&asked_), store_, tokenizer_, {});
  const auto good = draw("good", 0), bad = draw("bad", 1);
  const auto told = [&] {
    for (int i = 0; i < 500; ++i) {
      reward.throw_failed();
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  };
  reward.submit(good);
  for (int i = 0; i < 20; ++i) reward.throw_failed();
  reward.submit(bad);
  expect_error<DataError>(told, {"sample 1 of prompt 7", "bad"});
  const auto scored = reward.score({sample(good)});
  EXPECT_EQ(scored.samples[0].score, 4);
}

// One that is only scored when asked for is not waited for.
TEST_F(RewardWorkerTest, LookingForFailuresStartsNothing) {
  RewardWorker reward(std::make_unique<Kept>(std::make_shared<int>()), store_, tokenizer_, {});
  const auto a = draw("a", 0);
  reward.submit(a);
  reward.throw_failed();
  EXPECT_EQ(reward.score({sample(a)}).samples[0].score, 1);
}

}  // namespace
}  // namespace tandem
