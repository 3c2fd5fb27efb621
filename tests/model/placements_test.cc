// The lists that layouts are planned from name what the decoder really holds, and every switch between two layouts
// moves the least there is: compared with sets of elements, one by one.
#include "model/placements.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "base/error.h"
#include "model/decoder_weights.h"
#include "parallel/communicator_local.h"
#include "parallel/reshard.h"

namespace tandem {
namespace {

ModelConfig tiny(bool qwen, int64_t kv_heads = 8) {
  ModelConfig c;
  c.architecture = qwen ? Architecture::kQwen3 : Architecture::kLlama;
  c.qk_norm = qwen;
  c.tie_word_embeddings = qwen;
  c.vocab_size = 136, c.hidden_size = 64, c.intermediate_size = 144, c.num_hidden_layers = 4;
  c.num_attention_heads = 2 * kv_heads, c.num_key_value_heads = kv_heads, c.head_dim = 8;
  c.max_position_embeddings = 128;
  return c;
}

TEST(Placements, NameWhatTheDecoderHolds) {
  for (ModelConfig config : {tiny(true), tiny(false)}) {
    for (const bool extras : {false, true}) {
      config.qkv_bias = config.o_bias = config.mlp_bias = config.value_head = extras;
      const DecoderWeights weights = empty_weights(config);
      const auto ours = parameters(weights);
      const ParameterList list = placements(config);
      ASSERT_EQ(list.parameters.size(), ours.size());
      std::vector<std::string> names;
      for (size_t i = 0; i < ours.size(); ++i) {
        EXPECT_EQ(list.parameters[i].name, ours[i].name);
        int64_t elements = 0;
        for (const PlacedTensor& tensor : list.parameters[i].tensors) {
          elements += tensor.rows * tensor.cols;
          names.push_back(tensor.name);
        }
        EXPECT_EQ(elements, ours[i].tensor.numel()) << ours[i].name;
      }
      const auto hf = hf_parameters(config, weights);
      ASSERT_EQ(names.size(), hf.size());
      for (size_t i = 0; i < hf.size(); ++i) EXPECT_EQ(names[i], hf[i].name);
    }
  }
}

TEST(Placements, RefuseWhatDoesNotFit) {
  EXPECT_NO_THROW(check_layout(tiny(true), {.pp = 4, .tp = 8}));
  EXPECT_THROW(check_layout(tiny(true), {.pp = 5}), ConfigError);
  EXPECT_THROW(check_layout(tiny(true, 2), {.tp = 4}), ConfigError);
}

// Every element of the model has a number; what a rank holds is the set of numbers that the definition of its layout
// gives, worked out element by element.

struct Numbering {
  explicit Numbering(const ParameterList& list) {
    int64_t next = 0;
    for (const PlacedParameter& parameter : list.parameters)
      for (const PlacedTensor& tensor : parameter.tensors)
        first[tensor.name] = std::exchange(next, next + tensor.rows * tensor.cols);
    total = next;
  }
  std::map<std::string, int64_t> first;
  int64_t total;
};

int piece_of(int64_t i, int64_t size, int64_t pieces) {
  for (int64_t piece = 0; piece < pieces; ++piece)
    if (i < (piece + 1) * size / pieces) return static_cast<int>(piece);
  return -1;
}

bool on_tp_rank(const Placement& tp, int64_t index, int64_t size, int rank, int ranks) {
  const int piece = piece_of(index, size, tp.pieces);
  return piece >= rank * tp.pieces / ranks && piece < (rank + 1) * tp.pieces / ranks;
}

// The numbers of one parameter in the order of the rank's memory before FSDP.
std::vector<int64_t> in_memory(const PlacedParameter& parameter, const Numbering& numbers, int tp, int tps) {
  std::vector<int64_t> all;
  for (const PlacedTensor& t : parameter.tensors)
    for (int64_t row = 0; row < t.rows; ++row)
      for (int64_t col = 0; col < t.cols; ++col) {
        const bool cut = t.tp.kind == Placement::Kind::kShard;
        if (cut && !on_tp_rank(t.tp, t.tp.dim == 0 ? row : col, t.tp.dim == 0 ? t.rows : t.cols, tp, tps)) continue;
        all.push_back(numbers.first.at(t.name) + row * t.cols + col);
      }
  return all;
}

// By parameter; empty where the rank holds none of it.
std::vector<std::vector<int64_t>> memory_of(const ParameterList& list, const Numbering& numbers, const Layout& layout,
                                            int rank) {
  // By hand from the order in mesh.h: tp, cp, dp_shard, dp_replicate, pp.
  const int tp = rank % layout.tp, shard = rank / (layout.tp * layout.cp) % layout.dp_shard,
            stage = rank / (layout.tp * layout.cp * layout.dp_shard * layout.dp_replicate);
  std::vector<std::vector<int64_t>> memory;
  for (size_t p = 0; p < list.parameters.size(); ++p) {
    const PlacedParameter& parameter = list.parameters[p];
    memory.emplace_back();
    const bool first = stage == 0, last = stage == layout.pp - 1;
    const int64_t block = parameter.block, blocks = list.num_blocks;
    bool here = block >= stage * blocks / layout.pp && block < (stage + 1) * blocks / layout.pp;
    if (block < 0) here = first || (parameter.on_both_ends && last);
    if (block == blocks) here = last;
    if (!here) continue;
    std::vector<int64_t> all = in_memory(parameter, numbers, tp, layout.tp);
    const Range kept = layout.dp_shard == 1 ? Range{0, static_cast<int64_t>(all.size())}
                                            : flat_shard(static_cast<int64_t>(all.size()), p, shard, layout.dp_shard);
    memory.back().assign(all.begin() + kept.begin, all.begin() + kept.end);
  }
  return memory;
}

// `generation`: nobody generates from FSDP's parts.
std::vector<Layout> layouts_of(int world, bool generation = false) {
  std::vector<Layout> all;
  for (int pp = 1; pp <= std::min(world, 4); ++pp)
    for (int tp = 1; tp <= world; ++tp)
      for (int shard = 1; shard <= world; ++shard)
        if (world % (pp * tp * shard) == 0 && !(generation && shard > 1))
          all.push_back({.pp = pp, .dp_replicate = world / (pp * tp * shard), .dp_shard = shard, .tp = tp});
  return all;
}

using Memory = std::vector<std::vector<int64_t>>;  // by parameter: the numbers that lie there

std::vector<Memory> memory_of_all(const ParameterList& list, const Numbering& numbers, const Layout& layout) {
  std::vector<Memory> all;
  for (int rank = 0; rank < layout.world(); ++rank) all.push_back(memory_of(list, numbers, layout, rank));
  return all;
}

// Elements that a rank must hold and does not hold yet.
int64_t missing(const Memory& wanted, const Memory& had, int64_t elements) {
  std::vector<bool> here(static_cast<size_t>(elements), false);
  for (const auto& parameter : had)
    for (const int64_t element : parameter) here[static_cast<size_t>(element)] = true;
  int64_t count = 0;
  for (const auto& parameter : wanted)
    for (const int64_t element : parameter) count += here[static_cast<size_t>(element)] ? 0 : 1;
  return count;
}

void try_pair(const ParameterList& list, const Numbering& numbers, const Layout& from, const Layout& to,
              const std::vector<Memory>& old_memory, const std::vector<Memory>& new_memory) {
  SCOPED_TRACE(layout_name(from) + " -> " + layout_name(to));
  const ReshardPlan plan = plan_reshard(list, from, to);
  std::set<int> roles(plan.roles.begin(), plan.roles.end());
  ASSERT_EQ(roles.size(), old_memory.size());
  std::vector<Memory> before = old_memory, after, expected;
  int64_t least = 0, moved = 0, most_staging = 0;
  for (size_t rank = 0; rank < before.size(); ++rank) {
    expected.push_back(new_memory[static_cast<size_t>(plan.roles[rank])]);
    after.push_back(expected.back());
    for (auto& parameter : after.back()) std::fill(parameter.begin(), parameter.end(), -1);
    least += missing(expected.back(), before[rank], numbers.total);
  }
  std::vector<ReshardResult> results(before.size());
  run_ranks(from.world(), [&](Communicator& group) {
    const auto rank = static_cast<size_t>(group.rank());
    ReshardMemory memory;
    memory.element_bytes = sizeof(int64_t);
    memory.from = [&, rank](size_t p) { return reinterpret_cast<std::byte*>(before[rank][p].data()); };
    memory.to = [&, rank](size_t p) { return reinterpret_cast<std::byte*>(after[rank][p].data()); };
    results[rank] = reshard(group, plan, memory);
    EXPECT_EQ(group.traffic().bytes_received, results[rank].bytes_received);
    EXPECT_LE(group.traffic().calls, static_cast<int64_t>(plan.ends.size()));
  });
  for (const ReshardResult& result : results) {
    moved += result.bytes_received;
    most_staging = std::max(most_staging, result.peak_staging_bytes);
  }
  const auto bytes = [](int64_t elements) { return elements * static_cast<int64_t>(sizeof(int64_t)); };
  EXPECT_EQ(after, expected);
  EXPECT_EQ(moved, bytes(least));
  EXPECT_EQ(moved, bytes(plan.moved_elements()));
  EXPECT_LE(most_staging, bytes(list.largest_block()));
  EXPECT_TRUE(from != to || moved == 0);
}

void try_pairs(const ParameterList& list, const std::vector<Layout>& from, const std::vector<Layout>& to) {
  const Numbering numbers(list);
  std::vector<std::vector<Memory>> old_memory, new_memory;
  for (const Layout& layout : from) old_memory.push_back(memory_of_all(list, numbers, layout));
  for (const Layout& layout : to) new_memory.push_back(memory_of_all(list, numbers, layout));
  for (size_t f = 0; f < from.size(); ++f)
    for (size_t t = 0; t < to.size(); ++t) try_pair(list, numbers, from[f], to[t], old_memory[f], new_memory[t]);
}

// Just large enough that FSDP cuts within parameters.
ModelConfig small(bool qwen) {
  ModelConfig config = tiny(qwen);
  config.hidden_size = 32, config.head_dim = 4, config.intermediate_size = 168;
  return config;
}

TEST(Reshard, EveryPairOverFourRanksMovesTheLeast) {
  for (const bool qwen : {true, false}) try_pairs(placements(small(qwen)), layouts_of(4), layouts_of(4));
}

TEST(Reshard, EveryPairOverEightRanksMovesTheLeast) {
  try_pairs(placements(small(true)), layouts_of(8), layouts_of(8, true));
}

TEST(Reshard, UnevenTensorParallelism) {
  try_pairs(placements(tiny(false)), {Layout{.tp = 3}, Layout{.dp_shard = 3}, Layout{.pp = 3}},
            {Layout{.tp = 3}, Layout{.dp_shard = 3}, Layout{.dp_replicate = 3}});
}

TEST(Reshard, IsOneExchangeABlock) {
  const ParameterList list = placements(small(false));
  const ReshardPlan plan = plan_reshard(list, {.tp = 4}, {.dp_replicate = 4});
  EXPECT_EQ(plan.ends.size(), static_cast<size_t>(list.num_blocks) + 2);  // and what comes before and after them
  run_ranks(4, [&](Communicator& group) {
    std::vector<std::vector<float>> old_parts, whole;
    for (size_t p = 0; p < list.parameters.size(); ++p) {
      old_parts.emplace_back(static_cast<size_t>(held_elements(list, p, plan.from, group.rank())));
      whole.emplace_back(static_cast<size_t>(held_elements(list, p, plan.to, group.rank())));
    }
    ReshardMemory memory;
    memory.from = [&](size_t p) { return reinterpret_cast<std::byte*>(old_parts[p].data()); };
    memory.to = [&](size_t p) { return reinterpret_cast<std::byte*>(whole[p].data()); };
    std::vector<size_t> finished;
    memory.finished = [&](size_t p) { finished.push_back(p); };
    reshard(group, plan, memory);
    EXPECT_EQ(group.traffic().calls, list.num_blocks + 2);
    EXPECT_EQ(finished.size(), list.parameters.size());
  });
}

// Where training shards nest in generation shards the moved bytes are HybridFlow's formula.
TEST(Reshard, NestedLayoutsMoveHybridFlowsBytes) {
  ModelConfig config = tiny(false);
  config.vocab_size = 128;
  const ParameterList list = placements(config);
  int64_t cut = 0;  // norms are on every tp rank: the formula does not know of them
  for (const auto& parameter : list.parameters)
    for (const auto& tensor : parameter.tensors)
      if (tensor.tp.kind == Placement::Kind::kShard) cut += tensor.rows * tensor.cols;
  const Layout from{.tp = 8}, to{.dp_replicate = 4, .tp = 2};
  EXPECT_DOUBLE_EQ(static_cast<double>(plan_reshard(list, from, to).moved_elements()),
                   hybridflow_elements(cut, from, to));
  const std::vector<int> roles = plan_reshard(list, from, to).roles;
  for (int rank = 0; rank < 8; ++rank) EXPECT_EQ(roles[rank] % 2, rank / 4) << "whose half of the heads it is";
}

}  // namespace
}  // namespace tandem
