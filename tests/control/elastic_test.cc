// Which ranks a run goes on with.
#include "control/elastic.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

using Ranks = std::vector<int>;

TEST(FewerRanks, TheMissingOneGoesAndTheOthersKeepTheirNumbers) {
  EXPECT_EQ(all_ranks(4), (Ranks{0, 1, 2, 3}));
  EXPECT_EQ(fewer_ranks({0, 1, 2, 3}, 1, 1, 2), (Ranks{0, 2, 3}));
  EXPECT_EQ(fewer_ranks({0, 2, 3}, 3, 1, 2), (Ranks{0, 2}));
}

TEST(FewerRanks, TheLastGoesWhereNobodyKnowsWhich) {
  EXPECT_EQ(fewer_ranks({0, 1, 2, 3}, {}, 1, 2), (Ranks{0, 1, 2}));
  EXPECT_EQ(fewer_ranks({0, 2, 3}, 1, 1, 1), (Ranks{0, 2})) << "one that is not among them";
  EXPECT_EQ(fewer_ranks({0, 1}, 0, 1, 1), (Ranks{0})) << "the first one leads: its loss is not a rank's";
}

TEST(FewerRanks, GroupsThatShareAProductStayWhole) {
  EXPECT_EQ(fewer_ranks({0, 1, 2, 3}, 1, 2, 2), (Ranks{0, 2}));
  EXPECT_EQ(fewer_ranks({0, 1}, 1, 2, 1), Ranks{});
}

TEST(FewerRanks, NeverBelowTheLeast) {
  EXPECT_EQ(fewer_ranks({0, 1, 2}, 2, 1, 3), Ranks{});
  EXPECT_EQ(fewer_ranks({0, 1, 2}, 2, 1, 2), (Ranks{0, 1}));
  EXPECT_EQ(fewer_ranks({0}, {}, 1, 0), Ranks{});
}

TEST(ShardSize, DividesTheRanksAndSharesAtLeastAsWidely) {
  EXPECT_EQ(shard_size(4, 2), 2);
  EXPECT_EQ(shard_size(3, 2), 3);
  EXPECT_EQ(shard_size(6, 4), 6);
  EXPECT_EQ(shard_size(1, 4), 1);
}

}  // namespace
}  // namespace tandem
