// Every layout of ranks against one rank, through the whole engine: the same greedy tokens, the same gradient from
// equal weights, the same weights after five steps of gradient descent, and log-probs of sampling and training equal in
// bits.
#include <gtest/gtest.h>

#include <cstdlib>

#include "engine/layout_case.h"
#include "engine/with_ranks.h"

namespace tandem::layouts {
namespace {

class LayoutTest : public testing::TestWithParam<Case> {};

TEST_P(LayoutTest, TrainsAndGeneratesAsOneRank) {
  if (std::getenv("TANDEM_LAYOUTS") == nullptr && !in_short_list(GetParam()))
    GTEST_SKIP() << "in tests/e2e/layouts_test.sh, or set TANDEM_LAYOUTS=all";
  const auto [qwen, layout] = GetParam();
  with_ranks(
      layout, [qwen = qwen](int, const auto& store) { return make_engine(qwen, store); },
      [qwen = qwen](Engine& leader, TrajectoryStore& store) { expect_as_one_rank(train(leader, store), qwen); });
}

INSTANTIATE_TEST_SUITE_P(Layouts, LayoutTest, testing::Combine(testing::Bool(), testing::ValuesIn(kLayouts)),
                         [](const auto& info) { return case_id(info.param); });

// The figures above mean something: one rank learns, and changes its mind.
TEST(Layouts, OneRankMoves) {
  for (const bool qwen : {false, true}) {
    const Found& found = one_rank(qwen);
    EXPECT_GT(relative_distance(found.last.weights, found.first.weights), 1e-3);
    EXPECT_NE(found.greedy, found.greedy_after);
  }
}

// One rank that others would talk to, if there were any.
class Lonely : public Communicator {
 public:
  explicit Lonely(int64_t& exchanged) : Communicator(0, 1), exchanged_(exchanged) {}
  std::unique_ptr<Communicator> make_part(std::span<const int>) override {
    return std::make_unique<Lonely>(exchanged_);
  }
  void copy_rows(std::byte* to, size_t to_pitch, const std::byte* from, size_t from_pitch, size_t width,
                 size_t height) const override {
    ++exchanged_;
    Communicator::copy_rows(to, to_pitch, from, from_pitch, width, height);
  }

 private:
  void transfer(std::string_view, std::span<const SendPart>, std::span<const ReceivePart>) override { ++exchanged_; }
  int64_t& exchanged_;
};

TEST(Layouts, ATeamOfOneExchangesAndCopiesNothing) {
  int64_t exchanged = 0;
  const auto store = std::make_shared<TrajectoryStore>();
  const std::unique_ptr<Engine> engine = make_engine(true, store);
  const auto team =
      std::make_shared<Team>(std::make_unique<Lonely>(exchanged), std::make_unique<Lonely>(exchanged), Layout{});
  engine->join_team(team);
  const Found found = train(*engine, *store);
  EXPECT_EQ(exchanged, 0);
  EXPECT_EQ(team->work().traffic().calls, 0);
  EXPECT_EQ(engine->decoder().split(), nullptr);
  EXPECT_EQ(engine->decoder().sequences(), nullptr);
  EXPECT_EQ(relative_distance(found.last.weights, one_rank(true).last.weights), 0);
}

}  // namespace
}  // namespace tandem::layouts
