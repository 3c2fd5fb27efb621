#include "rollout/block_manager.h"

#include <gtest/gtest.h>

#include <numeric>

namespace tandem {
namespace {

using Blocks = std::vector<int32_t>;

std::vector<TokenId> tokens(int64_t count, TokenId first = 0) {
  std::vector<TokenId> ids(static_cast<size_t>(count));
  std::iota(ids.begin(), ids.end(), first);
  return ids;
}

Blocks allocate(BlockManager& blocks, int count) {
  Blocks table;
  for (int i = 0; i < count; ++i) table.push_back(blocks.allocate().value());
  return table;
}

void release(BlockManager& blocks, const Blocks& table) {
  for (const int32_t block : table) blocks.release(block);
}

TEST(BlockManager, CountsOwners) {
  BlockManager blocks(3, true);
  const Blocks table = allocate(blocks, 3);
  EXPECT_NE(table[0], table[1]);
  EXPECT_NE(table[1], table[2]);
  EXPECT_EQ(blocks.num_free(), 0);
  EXPECT_FALSE(blocks.allocate());
  blocks.share(table[1]);
  blocks.release(table[1]);
  EXPECT_EQ(blocks.num_free(), 0) << "one owner is left";
  blocks.release(table[1]);
  EXPECT_EQ(blocks.num_free(), 1);
  EXPECT_EQ(blocks.allocate(), table[1]);
  blocks.release(table[0]);
  EXPECT_ANY_THROW(blocks.release(table[0]));
}

TEST(BlockManager, FindsWholeBlocksOfTheSameBeginning) {
  BlockManager blocks(8, true);
  const Blocks table = allocate(blocks, 3);
  blocks.register_content(table, tokens(40));  // two whole blocks and a half
  EXPECT_EQ(blocks.acquire_prefix(tokens(48), 3), (Blocks{table[0], table[1]}));
  EXPECT_EQ(blocks.acquire_prefix(tokens(48), 1), Blocks{table[0]});
  EXPECT_EQ(blocks.acquire_prefix(tokens(31), 3), Blocks{table[0]}) << "31 tokens are one whole block";
  EXPECT_EQ(blocks.acquire_prefix(tokens(15), 3), Blocks{});
  auto other = tokens(48);
  other[17] = 500;
  EXPECT_EQ(blocks.acquire_prefix(other, 3), Blocks{table[0]});
  // The second block's tokens are not a beginning: what stands before a block is part of its key.
  EXPECT_EQ(blocks.acquire_prefix(tokens(16, 16), 1), Blocks{});
}

TEST(BlockManager, TheSameTokensAfterOtherTokensAreOtherContent) {
  BlockManager blocks(8, true);
  auto a = tokens(32), b = tokens(32);
  b[3] = 77;  // the second blocks have equal tokens
  const Blocks of_a = allocate(blocks, 2), of_b = allocate(blocks, 2);
  blocks.register_content(of_a, a);
  blocks.register_content(of_b, b);
  EXPECT_EQ(blocks.acquire_prefix(a, 2), of_a);
  EXPECT_EQ(blocks.acquire_prefix(b, 2), of_b);
}

TEST(BlockManager, ReleasedContentIsFoundUntilItsBlockIsTaken) {
  BlockManager blocks(3, true);
  const Blocks table = allocate(blocks, 2);
  blocks.register_content(table, tokens(32));
  release(blocks, table);
  EXPECT_EQ(blocks.num_free(), 3);
  const Blocks found = blocks.acquire_prefix(tokens(32), 2);
  EXPECT_EQ(found, table);
  EXPECT_EQ(blocks.num_free(), 1) << "found blocks have an owner again";
  release(blocks, found);
  const Blocks taken = allocate(blocks, 2);  // the never used one, then the one released first
  EXPECT_EQ(taken[1], table[0]);
  EXPECT_EQ(blocks.acquire_prefix(tokens(32), 2), Blocks{}) << "its beginning is gone";
}

TEST(BlockManager, TwinBlocksLeadToTheSameContent) {
  BlockManager blocks(6, true);
  const Blocks a = allocate(blocks, 1), b = allocate(blocks, 2);
  blocks.register_content(a, tokens(16));
  blocks.register_content(b, tokens(32));  // its first block repeats a's
  EXPECT_EQ(blocks.acquire_prefix(tokens(32), 2), (Blocks{a[0], b[1]}));
}

TEST(BlockManager, WithoutCachingNothingIsFound) {
  BlockManager blocks(2, false);
  const Blocks table = allocate(blocks, 1);
  blocks.register_content(table, tokens(16));
  EXPECT_EQ(blocks.acquire_prefix(tokens(16), 1), Blocks{});
}

}  // namespace
}  // namespace tandem
