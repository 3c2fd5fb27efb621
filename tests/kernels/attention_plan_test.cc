#include "kernels/cuda/attention_plan.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

namespace tandem::cuda {
namespace {

struct Planned {
  std::vector<DecodeItem> items;
  std::vector<DecodeMember> members;
  std::vector<SlotRange> slots;
};

Planned plan(const std::vector<DecodeSequence>& sequences, const std::vector<int32_t>& pages, int32_t head_group) {
  int64_t keys = 0;
  for (const auto& s : sequences) keys += s.keys;
  const auto most = decode_capacity(static_cast<int64_t>(sequences.size()), keys);
  Planned p{std::vector<DecodeItem>(most.items), std::vector<DecodeMember>(most.members),
            std::vector<SlotRange>(sequences.size())};
  const auto sizes = plan_decode(sequences, pages, head_group, {p.items, p.members, p.slots});
  p.items.resize(sizes.items), p.members.resize(sizes.members);
  return p;
}

// A page table of `tables` rows of 24 pages; rows in `same` have the leading `count` pages of row 0.
std::vector<int32_t> page_table(int32_t tables, const std::set<int32_t>& same = {}, int32_t count = 0) {
  std::vector<int32_t> pages;
  for (int32_t row = 0; row < tables; ++row)
    for (int32_t i = 0; i < 24; ++i) pages.push_back(same.contains(row) && i < count ? i : row * 24 + i);
  return pages;
}

// Every (sequence, chunk) is computed once, from the sequence's own pages, into its own slot.
void expect_complete(const Planned& p, const std::vector<DecodeSequence>& sequences, const std::vector<int32_t>& pages,
                     int32_t head_group) {
  std::map<int32_t, std::pair<int32_t, int32_t>> place;  // slot → (sequence, chunk)
  for (size_t s = 0; s < sequences.size(); ++s) {
    EXPECT_EQ(p.slots[s].count, num_chunks(sequences[s].keys));
    for (int32_t c = 0; c < p.slots[s].count; ++c)
      EXPECT_TRUE(place.insert({p.slots[s].first + c, {static_cast<int32_t>(s), c}}).second);
  }
  for (const auto& item : p.items) {
    EXPECT_LE(item.num_members * head_group, kDecodeRows);
    for (int32_t m = 0; m < item.num_members; ++m) {
      const auto& member = p.members[item.first_member + m];
      const auto at = place.find(member.slot);
      ASSERT_NE(at, place.end()) << "slot " << member.slot << " is written twice or is nobody's";
      const auto [sequence, chunk] = at->second;
      EXPECT_EQ(member.sequence, sequence);
      EXPECT_EQ(item.keys, std::min(kChunk, sequences[sequence].keys - chunk * kChunk));
      for (int32_t i = 0; i * kKvPage < item.keys; ++i)
        EXPECT_EQ(pages[item.first_page + i], pages[sequences[sequence].first_page + chunk * 8 + i]);
      place.erase(at);
    }
  }
  EXPECT_TRUE(place.empty());
}

TEST(AttentionPlan, ReadsSharedWholeChunksOnce) {
  // Rows 0, 1 and 3 share 16 pages: two whole chunks. Row 2 is of the group, but has its own pages.
  const auto pages = page_table(4, {0, 1, 3}, 16);
  const std::vector<DecodeSequence> sequences{{0, 300, 7}, {24, 257, 7}, {48, 200, 7}, {72, 256, 7}};
  const auto p = plan(sequences, pages, 2);
  expect_complete(p, sequences, pages, 2);
  // Two shared chunks, one whole chunk of row 2, and the rests of 44, 1 and 72 keys.
  ASSERT_EQ(p.items.size(), 6u);
  EXPECT_EQ(p.items[0].num_members, 3);
  EXPECT_EQ(p.items[1].num_members, 3);
  EXPECT_EQ(p.items[2].keys, kChunk);
  EXPECT_EQ(p.items[3].keys, 44);
  EXPECT_EQ(p.items[4].keys, 1);
  EXPECT_EQ(p.items[5].keys, 72);
}

TEST(AttentionPlan, SharesNoChunkThatIsNotWhole) {
  const auto pages = page_table(2, {0, 1}, 7);  // 112 shared keys
  const std::vector<DecodeSequence> sequences{{0, 128, 0}, {24, 140, 0}};
  const auto p = plan(sequences, pages, 2);
  expect_complete(p, sequences, pages, 2);
  EXPECT_EQ(p.items.size(), 3u);
}

TEST(AttentionPlan, SequencesWithoutAGroupShareNothing) {
  const auto pages = page_table(2, {0, 1}, 8);
  const std::vector<DecodeSequence> sequences{{0, 128, -1}, {24, 128, -1}};
  EXPECT_EQ(plan(sequences, pages, 2).items.size(), 2u);
}

TEST(AttentionPlan, SplitsAGroupThatIsTooLarge) {
  std::set<int32_t> all;
  for (int32_t i = 0; i < 9; ++i) all.insert(i);
  const auto pages = page_table(9, all, 8);
  std::vector<DecodeSequence> sequences;
  for (int32_t i = 0; i < 9; ++i) sequences.push_back({i * 24, 128 + i, 3});
  for (const int32_t head_group : {1, 2, 3, 4, 7, 8}) {
    const auto p = plan(sequences, pages, head_group);
    expect_complete(p, sequences, pages, head_group);
    const int32_t together = kDecodeRows / head_group;
    EXPECT_EQ(static_cast<int32_t>(p.items.size()), (9 + together - 1) / together + 8);
  }
}

TEST(AttentionPlan, TakesGroupsInAnyOrder) {
  const auto pages = page_table(4, {0, 2}, 8);
  const std::vector<DecodeSequence> sequences{{0, 130, 1}, {24, 130, 0}, {48, 130, 1}, {72, 130, 0}};
  const auto p = plan(sequences, pages, 4);
  expect_complete(p, sequences, pages, 4);
  EXPECT_EQ(p.items.size(), 1u + 2u + 4u);
}

TEST(AttentionPlan, CutsQueriesIntoTilesThatCoverThem) {
  const std::vector<QueryTile> runs{{0, 5, 0, 9}, {5, 200, 100, 4}};
  const auto pairs = plan_query_tiles(runs, 2);
  ASSERT_EQ(pairs.size(), 5u);  // 200 rows in tiles of 64, the last first; then 5 rows
  const auto expect_tile = [](const QueryTile& tile, const QueryTile& expected) {
    EXPECT_EQ(tile.row, expected.row);
    EXPECT_EQ(tile.count, expected.count);
    EXPECT_EQ(tile.pos, expected.pos);
    EXPECT_EQ(tile.kv, expected.kv);
  };
  expect_tile(pairs[0], {5 + 192, 8, 292, 4});
  expect_tile(pairs[3], {5, 64, 100, 4});
  expect_tile(pairs[4], {0, 5, 0, 9});
  EXPECT_EQ(plan_query_tiles(runs, 3).size(), 3u);
}

TEST(AttentionPlan, APromptsKeysSeeEveryQueryThatSeesThem) {
  // A prompt of 130 rows, two samples of it, and a sequence alone.
  const std::vector<PackedSequence> sequences{{0, 0, 0, 130}, {0, 130, 130, 70}, {0, 0, 230, 128}, {0, 130, 200, 30}};
  const auto plan = plan_packed(sequences, 2);
  std::vector<int> covered(358, 0);
  for (const auto& tile : plan.key_tiles) {
    const PackedSequence& owner = sequences[tile.sequence];
    EXPECT_EQ(tile.row - owner.own_row, tile.pos - owner.prefix_len);
    for (int32_t r = 0; r < tile.count; ++r) ++covered[tile.row + r];
    std::multiset<int32_t> expected, seen;  // query rows that may see the tile's first key
    for (const auto& s : sequences)
      for (int32_t i = 0; i < s.own_len; ++i)
        if (&s == &owner ? i >= tile.row - owner.own_row : s.prefix_len > 0 && s.prefix_row == owner.own_row)
          expected.insert(s.own_row + i);
    for (int32_t r = 0; r < tile.num_runs; ++r) {
      const QueryTile& run = plan.key_runs[tile.first_run + r];
      EXPECT_EQ(run.row - sequences[run.kv].own_row, run.pos - sequences[run.kv].prefix_len);
      for (int32_t i = 0; i < run.count; ++i) seen.insert(run.row + i);
    }
    EXPECT_EQ(seen, expected);
  }
  EXPECT_EQ(covered, std::vector<int>(358, 1));
}

}  // namespace
}  // namespace tandem::cuda
