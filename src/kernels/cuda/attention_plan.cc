#include "kernels/cuda/attention_plan.h"

#include <algorithm>
#include <iterator>
#include <numeric>

#include "base/error.h"

namespace tandem::cuda {
namespace {

class DecodePlanner {
 public:
  DecodePlanner(std::span<const DecodeSequence> sequences, std::span<const int32_t> page_table, int32_t head_group,
                const DecodeArrays& arrays)
      : sequences_(sequences), pages_(page_table), capacity_(kDecodeRows / head_group), arrays_(arrays) {}

  DecodeSizes run() {
    assign_slots();
    std::vector<int32_t> own_from(sequences_.size(), 0);  // the first chunk that a sequence reads alone
    for (const auto& group : groups()) share(group, own_from);
    for (size_t s = 0; s < sequences_.size(); ++s)
      for (int32_t c = own_from[s]; c < sequences_[s].keys / kChunk; ++c) add_own(static_cast<int32_t>(s), c, kChunk);
    for (size_t s = 0; s < sequences_.size(); ++s)
      if (const int32_t rest = sequences_[s].keys % kChunk; rest > 0)
        add_own(static_cast<int32_t>(s), sequences_[s].keys / kChunk, rest);
    return sizes_;
  }

 private:
  void assign_slots() {
    check(arrays_.slots.size() >= sequences_.size(), "decode plan: too few slot ranges");
    for (size_t s = 0; s < sequences_.size(); ++s) {
      check(sequences_[s].keys > 0, "decode plan: a sequence without keys");
      arrays_.slots[s] = {sizes_.slots, num_chunks(sequences_[s].keys)};
      sizes_.slots += arrays_.slots[s].count;
    }
  }

  std::vector<std::vector<int32_t>> groups() const {
    std::vector<int32_t> order(sequences_.size());
    std::iota(order.begin(), order.end(), 0);
    std::erase_if(order, [&](int32_t s) { return sequences_[s].group < 0; });
    std::stable_sort(order.begin(), order.end(),
                     [&](int32_t a, int32_t b) { return sequences_[a].group < sequences_[b].group; });
    std::vector<std::vector<int32_t>> groups;
    for (size_t i = 0; i < order.size(); ++i) {
      if (i == 0 || sequences_[order[i]].group != sequences_[order[i - 1]].group) groups.emplace_back();
      groups.back().push_back(order[i]);
    }
    return groups;
  }

  bool same_pages(int32_t a, int32_t b, int32_t chunk) const {
    constexpr int32_t kPages = kChunk / kKvPage;
    const auto at = [&](int32_t s) { return pages_.begin() + sequences_[s].first_page + chunk * kPages; };
    return std::equal(at(a), at(a) + kPages, at(b));
  }

  // Sequences that read chunk 0 together go on to chunk 1 together, until a chunk differs or is not whole.
  void share(std::vector<int32_t> members, std::vector<int32_t>& own_from) {
    while (members.size() > 1) {
      const int32_t leader = members.front();
      std::vector<int32_t> together = members, apart;
      for (int32_t chunk = 0;; ++chunk) {
        const bool whole = sequences_[leader].keys >= (chunk + 1) * kChunk;
        std::vector<int32_t> next;
        for (const int32_t s : together) {
          const bool joins = whole && sequences_[s].keys >= (chunk + 1) * kChunk && same_pages(leader, s, chunk);
          if (joins) next.push_back(s);
          if (!joins && chunk == 0) apart.push_back(s);
        }
        together = std::move(next);
        if (together.size() < 2) break;
        add_shared(together, chunk);
        for (const int32_t s : together) own_from[s] = chunk + 1;
      }
      std::erase(apart, leader);
      members = std::move(apart);
    }
  }

  void add_shared(std::span<const int32_t> together, int32_t chunk) {
    for (size_t first = 0; first < together.size(); first += capacity_) {
      const auto run = together.subspan(first, std::min<size_t>(capacity_, together.size() - first));
      add_item(run, chunk, kChunk);
    }
  }
  void add_own(int32_t sequence, int32_t chunk, int32_t keys) { add_item({&sequence, 1}, chunk, keys); }

  void add_item(std::span<const int32_t> members, int32_t chunk, int32_t keys) {
    const auto count = static_cast<int32_t>(members.size());
    check(static_cast<size_t>(sizes_.items) < arrays_.items.size() &&
              static_cast<size_t>(sizes_.members + count) <= arrays_.members.size(),
          "decode plan: too little room for its items");
    const int32_t page = sequences_[members[0]].first_page + chunk * (kChunk / kKvPage);
    arrays_.items[sizes_.items++] = {sizes_.members, count, keys, page};
    for (const int32_t s : members) arrays_.members[sizes_.members++] = {s, arrays_.slots[s].first + chunk};
  }

  std::span<const DecodeSequence> sequences_;
  std::span<const int32_t> pages_;
  size_t capacity_;
  DecodeArrays arrays_;
  DecodeSizes sizes_{};
};

int32_t length(const PackedSequence& s) { return s.prefix_len + s.own_len; }

// Blocks take key tiles in order. Neighbouring tiles read the same queries, so most stay together; the last ones go by
// falling work, so that blocks finish together.
void order_tail(PackedPlan& plan) {
  constexpr ptrdiff_t kTail = 96;
  const auto work = [&](const KeyTile& tile) {
    int32_t rows = 0;
    for (int32_t r = 0; r < tile.num_runs; ++r) rows += plan.key_runs[tile.first_run + r].count;
    return rows;
  };
  auto& tiles = plan.key_tiles;
  std::stable_sort(tiles.end() - std::min<ptrdiff_t>(kTail, std::ssize(tiles)), tiles.end(),
                   [&](const KeyTile& a, const KeyTile& b) { return work(a) > work(b); });
}

}  // namespace

DecodeSizes decode_capacity(int64_t sequences, int64_t keys) {
  const auto chunks = static_cast<int32_t>(sequences + keys / kChunk);
  return {chunks, chunks, chunks};
}

DecodeSizes plan_decode(std::span<const DecodeSequence> sequences, std::span<const int32_t> page_table,
                        int32_t head_group, const DecodeArrays& arrays) {
  check(head_group >= 1 && head_group <= kMaxHeadGroup, "decode plan: unsupported number of heads per KV head");
  return DecodePlanner(sequences, page_table, head_group, arrays).run();
}

std::vector<QueryTile> plan_query_tiles(std::span<const QueryTile> runs, int32_t head_group) {
  const int32_t rows = query_tile_rows(head_group);
  std::vector<size_t> order(runs.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return runs[a].pos + runs[a].count > runs[b].pos + runs[b].count; });
  std::vector<QueryTile> tiles;
  for (const size_t i : order) {
    const QueryTile& run = runs[i];
    check(run.count > 0, "attention plan: an empty run of queries");
    for (int32_t at = (run.count - 1) / rows * rows; at >= 0; at -= rows)
      tiles.push_back({run.row + at, std::min(rows, run.count - at), run.pos + at, run.kv});
  }
  return tiles;
}

PackedPlan plan_packed(std::span<const PackedSequence> sequences, int32_t head_group) {
  PackedPlan plan;
  std::vector<QueryTile> runs;
  std::vector<std::vector<int32_t>> samples(sequences.size());  // of a prompt: the sequences whose prefix it is
  std::vector<std::pair<int32_t, int32_t>> owners;              // (own_row, sequence)
  for (size_t s = 0; s < sequences.size(); ++s) owners.emplace_back(sequences[s].own_row, static_cast<int32_t>(s));
  std::sort(owners.begin(), owners.end());
  for (size_t s = 0; s < sequences.size(); ++s) {
    const PackedSequence& seq = sequences[s];
    runs.push_back({seq.own_row, seq.own_len, seq.prefix_len, static_cast<int32_t>(s)});
    if (seq.prefix_len == 0) continue;
    const auto owner = std::lower_bound(owners.begin(), owners.end(), std::pair{seq.prefix_row, 0});
    check(owner != owners.end() && owner->first == seq.prefix_row, "packed plan: a prefix that no sequence owns");
    const PackedSequence& prompt = sequences[owner->second];
    check(prompt.prefix_len == 0 && prompt.own_len == seq.prefix_len, "packed plan: a prefix is not a whole prompt");
    samples[owner->second].push_back(static_cast<int32_t>(s));
  }
  plan.query_tiles = plan_query_tiles(runs, head_group);
  std::vector<int32_t> order(sequences.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return std::pair(samples[a].size(), length(sequences[a])) > std::pair(samples[b].size(), length(sequences[b]));
  });
  for (const int32_t s : order) {
    const PackedSequence& seq = sequences[s];
    for (int32_t at = 0; at < seq.own_len; at += kChunk) {
      const auto first = static_cast<int32_t>(plan.key_runs.size());
      plan.key_runs.push_back({seq.own_row + at, seq.own_len - at, seq.prefix_len + at, s});
      for (const int32_t sample : samples[s]) plan.key_runs.push_back(runs[sample]);
      plan.key_tiles.push_back({seq.own_row + at, std::min(kChunk, seq.own_len - at), seq.prefix_len + at, s, first,
                                static_cast<int32_t>(plan.key_runs.size()) - first});
    }
  }
  order_tail(plan);
  return plan;
}

}  // namespace tandem::cuda
