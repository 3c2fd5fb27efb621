#include "app/bench_reshard.h"

#include <fmt/format.h>

#include <cstdio>
#include <vector>

#include "base/error.h"
#include "model/placements.h"
#include "parallel/communicator_local.h"
#include "parallel/reshard.h"

namespace tandem {
namespace {

constexpr int64_t kBytes = 2;                        // of a bf16 weight
constexpr int64_t kMostToMove = int64_t{256} << 20;  // bytes of all ranks' memory, before and after

std::vector<Layout> layouts_of(int ranks, const ModelConfig& config) {
  std::vector<Layout> all;
  for (int pp = 1; pp <= ranks; ++pp)
    for (int tp = 1; pp * tp <= ranks; ++tp)
      for (int shard = 1; pp * tp * shard <= ranks; ++shard) {
        if (ranks % (pp * tp * shard) != 0) continue;
        const Layout layout{.pp = pp, .dp_replicate = ranks / (pp * tp * shard), .dp_shard = shard, .tp = tp};
        try {
          check_layout(config, layout);
        } catch (const ConfigError&) {
          continue;
        }
        all.push_back(layout);
      }
  return all;
}

using Memory = std::vector<std::vector<std::byte>>;  // by parameter

Memory memory_of(const ParameterList& list, const Layout& layout, int rank) {
  Memory memory(list.parameters.size());
  for (const Held& held : holdings(list, layout, rank)) {
    auto& bytes = memory[held.parameter];
    bytes.resize(bytes.size() + static_cast<size_t>(held.box.elements() * kBytes));
  }
  return memory;
}

int64_t held_bytes(const ParameterList& list, const Layout& layout) {
  int64_t total = 0;
  for (int rank = 0; rank < layout.world(); ++rank)
    for (const Held& held : holdings(list, layout, rank)) total += held.box.elements() * kBytes;
  return total;
}

// Moves it between threads; the bytes that the communicators counted.
int64_t counted(const ParameterList& list, const ReshardPlan& plan) {
  std::vector<int64_t> received(static_cast<size_t>(plan.from.world()));
  run_ranks(plan.from.world(), [&](Communicator& group) {
    const auto rank = static_cast<size_t>(group.rank());
    Memory from = memory_of(list, plan.from, group.rank()), to = memory_of(list, plan.to, plan.roles[rank]);
    reshard(group, plan,
            {static_cast<size_t>(kBytes),
             [&](size_t p) { return from[p].data(); },
             [&](size_t p) { return to[p].data(); },
             {}});
    received[rank] = group.traffic().bytes_received;
  });
  int64_t total = 0;
  for (const int64_t bytes : received) total += bytes;
  return total;
}

}  // namespace

int bench_reshard(const std::filesystem::path& model, int ranks) {
  const ModelConfig config = load_model_config(model);
  const ParameterList list = placements(config);
  const int64_t elements = list.num_elements();
  fmt::print("{} parameters, {} ranks; MB of bf16 that cross between ranks, all together\n", elements, ranks);
  fmt::print("{:>16} -> {:<16} {:>10} {:>10} {:>10} {:>10} {:>12}\n", "train", "generate", "planned", "counted",
             "hybridflow", "naive", "most a rank");
  const auto mb = [](double elements_moved) { return elements_moved * kBytes / 1e6; };
  const auto layouts = layouts_of(ranks, config);
  for (const Layout& from : layouts)
    for (const Layout& to : layouts) {
      if (to.dp_shard > 1) continue;  // nobody generates from shards
      const ReshardPlan plan = plan_reshard(list, from, to);
      const bool small = held_bytes(list, from) + held_bytes(list, to) <= kMostToMove;
      const std::string measured = small ? fmt::format("{:.2f}", static_cast<double>(counted(list, plan)) / 1e6) : "-";
      fmt::print("{:>16} -> {:<16} {:>10.2f} {:>10} {:>10.2f} {:>10.2f} {:>12.2f}\n", layout_name(from),
                 layout_name(to), mb(static_cast<double>(plan.moved_elements())), measured,
                 mb(hybridflow_elements(elements, from, to)), mb(naive_gather_elements(elements, from)),
                 mb(static_cast<double>(plan.most_received())));
    }
  std::fflush(stdout);
  return 0;
}

}  // namespace tandem
