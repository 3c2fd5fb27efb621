// The host logic beside the device kernels: what is grouped and cut before it is uploaded.
#include <gtest/gtest.h>

#include "kernels/chunks.h"
#include "kernels/id_groups.h"

namespace tandem::kernels {
namespace {

using Ints = std::vector<int32_t>;

TEST(IdGroups, GroupsTokensByIdInTheOrderOfTheBatch) {
  const IdGroups groups = group_ids(Ints{7, 2, 7, 9, 2, 7});
  EXPECT_EQ(groups.ids, (Ints{2, 7, 9}));
  EXPECT_EQ(groups.starts, (Ints{0, 2, 5, 6}));
  EXPECT_EQ(groups.order, (Ints{1, 4, 0, 2, 5, 3}));
}

TEST(IdGroups, OneIdAndNone) {
  const IdGroups one = group_ids(Ints{4, 4, 4});
  EXPECT_EQ(one.ids, Ints{4});
  EXPECT_EQ(one.starts, (Ints{0, 3}));
  EXPECT_EQ(one.order, (Ints{0, 1, 2}));
  const IdGroups none = group_ids({});
  EXPECT_TRUE(none.ids.empty());
  EXPECT_EQ(none.starts, Ints{0});
}

TEST(Chunks, CountsWholeAndBrokenChunks) {
  using Sizes = std::vector<int64_t>;
  EXPECT_EQ(chunk_starts(Sizes{10, 1, 0, 8, 9}, 4), (Sizes{0, 3, 4, 4, 6, 9}));
  EXPECT_EQ(chunk_starts({}, 4), Sizes{0});
}

}  // namespace
}  // namespace tandem::kernels
