// Breakpoints as files: set, reached, released.
#include "control/breakpoints.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "control/argument_shapes.h"
#include "observe/temp_folder.h"

namespace tandem {
namespace {

using namespace std::chrono_literals;

TEST(Breakpoints, HoldTheirRankUntilTheyAreReleased) {
  const TempFolder folder;
  const Breakpoints points(folder / "breakpoints");
  EXPECT_TRUE(points.list().empty());
  points.set("actor.update", 1);
  EXPECT_TRUE(points.has("actor.update", 1));
  EXPECT_FALSE(points.has("actor.update", 0));
  EXPECT_TRUE(points.any("actor.update"));
  EXPECT_FALSE(points.any("actor.generate"));
  ASSERT_EQ(points.list().size(), 1U);
  EXPECT_LT(points.list()[0].held_seconds, 0);

  std::atomic<int> through{0};
  std::thread held([&] { points.wait("actor.update", 1, [] { return std::string("3 samples"); }), ++through; });
  std::thread other([&] { points.wait("actor.update", {}, {}), ++through; });
  points.wait("actor.update", 0, {});  // another rank's: goes on at once
  for (int i = 0; i < 500 && points.list()[0].held_seconds < 0; ++i) std::this_thread::sleep_for(2ms);
  EXPECT_EQ(points.list()[0].arguments, "3 samples");
  EXPECT_EQ(points.list()[0].rank, 1);
  EXPECT_EQ(through, 0);
  EXPECT_EQ(points.release("actor.update", 0), 0U);
  EXPECT_EQ(through, 0);
  EXPECT_EQ(points.release("actor.update", {}), 1U);
  held.join();
  other.join();
  EXPECT_EQ(through, 2);
  EXPECT_TRUE(points.list().empty());
}

TEST(Breakpoints, AllAreReleasedTogether) {
  const TempFolder folder;
  const Breakpoints points(folder.path());
  points.set("actor.update", 1);
  points.set("reward.score", 0);
  spill(folder / "a file", "of somebody else");
  EXPECT_EQ(points.list().size(), 2U);
  EXPECT_EQ(points.release("all", {}), 2U);
  EXPECT_FALSE(points.any("reward.score"));
}

TEST(ShapesOf, SayHowManyAndHowLong) {
  RolloutBatch batch(3);
  for (size_t i = 0; i < 3; ++i)
    batch[i].group = static_cast<uint32_t>(i / 2), batch[i].prompt_length = 7, batch[i].response_length = 3 + i,
    batch[i].trained_length = 2;
  EXPECT_EQ(shapes_of(batch), "3 samples of 2 prompts: prompt_ids[7], response_ids[3..5], trained[2]");
  auto prompt = std::make_shared<Prompt>();
  prompt->token_ids = {1, 2};
  EXPECT_EQ(shapes_of(std::vector<PromptPtr>{prompt}), "1 prompts: prompt_ids[2]");
  EXPECT_EQ(shapes_of(3.5), "");
}

}  // namespace
}  // namespace tandem
