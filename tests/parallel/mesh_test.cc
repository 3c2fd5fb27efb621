#include "parallel/mesh.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

TEST(Mesh, RanksRunThroughTensorParallelismFirst) {
  const Layout layout{.pp = 2, .dp_shard = 2, .tp = 2};
  EXPECT_EQ(layout.world(), 8);
  EXPECT_EQ(coordinates(layout, 0), (Coordinates{0, 0, 0, 0, 0}));
  EXPECT_EQ(coordinates(layout, 1), (Coordinates{0, 0, 0, 0, 1}));
  EXPECT_EQ(coordinates(layout, 2), (Coordinates{0, 0, 1, 0, 0}));
  EXPECT_EQ(coordinates(layout, 7), (Coordinates{1, 0, 1, 0, 1}));
  for (int rank = 0; rank < 8; ++rank) EXPECT_EQ(rank_at(layout, coordinates(layout, rank)), rank);
}

TEST(Mesh, GroupsAlongAxes) {
  const Layout layout{.pp = 2, .dp_shard = 2, .tp = 2};
  const auto along = [&](int rank, std::vector<Axis> axes) { return ranks_along(layout, rank, axes); };
  EXPECT_EQ(along(5, {Axis::kTp}), (std::vector<int>{4, 5}));
  EXPECT_EQ(along(5, {Axis::kDpShard}), (std::vector<int>{5, 7}));
  EXPECT_EQ(along(5, {Axis::kPp}), (std::vector<int>{1, 5}));
  EXPECT_EQ(along(5, {Axis::kDpShard, Axis::kTp}), (std::vector<int>{4, 5, 6, 7}));
}

TEST(Mesh, Names) {
  EXPECT_EQ(layout_name({}), "single");
  EXPECT_EQ(layout_name({.dp_shard = 4}), "fsdp4");
  EXPECT_EQ(layout_name({.dp_replicate = 2, .dp_shard = 2}), "hybrid2x2");
  EXPECT_EQ(layout_name({.pp = 2, .tp = 2}), "tp2 pp2");
}

}  // namespace
}  // namespace tandem
