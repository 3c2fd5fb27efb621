// Samples of an update go from rank to rank; the order that names them holds no token.
#include "engine/sample_exchange.h"

#include <gtest/gtest.h>

#include <mutex>

#include "parallel/communicator_local.h"

namespace tandem {
namespace {

constexpr int kRanks = 3;

TrajectoryPtr response(const PromptPtr& prompt, uint32_t index, size_t length) {
  auto t = std::make_shared<Trajectory>();
  t->prompt = prompt, t->sample_index = index, t->policy_version = 4, t->temperature = 0.9;
  for (size_t i = 0; i < length; ++i)
    t->response_ids.push_back(static_cast<TokenId>(100 * index + i)), t->rollout_logprobs.push_back(-0.1F * i);
  return t;
}

// Two prompts, three samples each; sample i of either was drawn by rank i.
struct Step {
  explicit Step(size_t length) {
    for (uint64_t p = 0; p < 2; ++p) {
      auto prompt = std::make_shared<Prompt>();
      prompt->id = 7 + p;
      prompt->token_ids = {1, 2, static_cast<TokenId>(p)};
      for (uint32_t i = 0; i < kRanks; ++i) {
        TrainingSample sample{.trajectory = response(prompt, i, length), .advantage = 0.5 * i - 0.25};
        sample.ref_logprobs.assign(length, -1.F / (1 + i));
        names.push_back({prompt->id, i, static_cast<int32_t>(i), 3, static_cast<uint32_t>(length), sample.advantage});
        drawn[i][{prompt->id, i}] = sample.trajectory;
        samples.push_back(std::move(sample));
      }
    }
  }
  std::vector<TrainingSample> samples;
  std::vector<SampleName> names;
  DrawnHere drawn[kRanks];
};

TEST(SampleExchange, EveryRankHasEverySample) {
  const Step step(5);
  std::mutex mutex;
  run_ranks(kRanks, [&](Communicator& world) {
    const int rank = world.rank();
    const auto all =
        exchange_samples(world, step.names, rank == 0 ? step.samples : std::vector<TrainingSample>(), step.drawn[rank]);
    const std::lock_guard lock(mutex);
    ASSERT_EQ(all.size(), step.samples.size());
    for (size_t i = 0; i < all.size(); ++i) {
      const TrainingSample &is = all[i], &wanted = step.samples[i];
      EXPECT_EQ(is.trajectory->response_ids, wanted.trajectory->response_ids) << rank << " " << i;
      EXPECT_EQ(is.trajectory->rollout_logprobs, wanted.trajectory->rollout_logprobs);
      EXPECT_EQ(is.trajectory->policy_version, 4U);
      EXPECT_EQ(is.trajectory->temperature, 0.9);
      EXPECT_EQ(is.trajectory->prompt->token_ids, wanted.trajectory->prompt->token_ids);
      EXPECT_EQ(is.ref_logprobs, wanted.ref_logprobs);
      EXPECT_EQ(is.advantage, wanted.advantage);
      EXPECT_EQ(is.trajectory->prompt == all[0].trajectory->prompt, i < 3) << "samples of a prompt share it";
    }
    // The first rank has them all: nobody sends it more than how much there is.
    if (rank == 0) {
      EXPECT_LE(world.traffic().bytes_received, 8 * (kRanks - 1));
    }
  });
}

TEST(SampleExchange, TheOrderDoesNotGrowWithResponses) {
  EXPECT_EQ(encode_names(Step(5).names).size(), encode_names(Step(5000).names).size());
  const auto names = decode_names(encode_names(Step(5).names));
  ASSERT_EQ(names.size(), 6U);
  EXPECT_EQ(names[4].prompt, 8U);
  EXPECT_EQ(names[4].sample_index, 1U);
  EXPECT_EQ(names[4].owner, 1);
  EXPECT_EQ(names[4].advantage, 0.25);
  EXPECT_EQ(shapes_of(names), "6 samples: prompt_ids[3], response_ids[5]");
}

}  // namespace
}  // namespace tandem
