// Plans that add up every rank's contribution in rank order.
#include <algorithm>

#include "parallel/route_plan.h"

namespace tandem {
namespace {

void deliver(RoutePlanner& plan, int step, int from, size_t piece, int num_ranks) {
  for (const int owner : plan.piece(piece).owners) plan.send_piece(step, from, owner, piece, 0, num_ranks);
}

// The owner in each equal share of the ranks adds up its share's contributions and goes on where the one before it
// stopped.
void sum_directly(RoutePlanner& plan, int num_ranks) {
  for (size_t p = 0; p < plan.num_pieces(); ++p) {
    const std::vector<int>& owners = plan.piece(p).owners;
    const auto copies = static_cast<int>(owners.size());
    check(num_ranks % copies == 0, "copies of unequal shares of the ranks");
    const int share = num_ranks / copies;
    for (int rank = 0; rank < num_ranks; ++rank)
      plan.send_piece(0, rank, owners[static_cast<size_t>(rank / share)], p, rank, rank + 1);
    for (int copy = 1; copy < copies; ++copy)
      plan.send_piece(copy, owners[static_cast<size_t>(copy) - 1], owners[static_cast<size_t>(copy)], p, 0,
                      copy * share);
    if (copies > 1) deliver(plan, copies, owners.back(), p, num_ranks);
  }
}

void sum_by_ring(RoutePlanner& plan, int num_ranks) {
  for (size_t p = 0; p < plan.num_pieces(); ++p) {
    const auto start = static_cast<int>(p);  // one piece after another
    for (int rank = 0; rank + 1 < num_ranks; ++rank) plan.send_piece(start + rank, rank, rank + 1, p, 0, rank + 1);
    deliver(plan, start + num_ranks - 1, num_ranks - 1, p, num_ranks);
  }
}

// Who adds a piece up within a run: an owner, or by turns.
int collector(const std::vector<int>& run, const RoutePiece& piece, size_t p) {
  for (const int rank : run)
    if (std::ranges::binary_search(piece.owners, rank)) return rank;
  return run[p % run.size()];
}

void sum_by_nodes(RoutePlanner& plan, const Topology& topology) {
  const auto runs = topology.runs();
  for (size_t p = 0; p < plan.num_pieces(); ++p) {
    int before = -1, step = 0;
    for (const std::vector<int>& run : runs) {
      const int here = collector(run, plan.piece(p), p);
      for (const int rank : run) plan.send_piece(0, rank, here, p, rank, rank + 1);
      if (before >= 0) plan.send_piece(++step, before, here, p, 0, run.front());
      before = here;
    }
    deliver(plan, step + 1, before, p, topology.num_ranks());
  }
}

// A 64th of all pieces: sums go one way, from the first run to the last, chunk after chunk.
size_t sum_chunk_bytes(std::span<const RoutePiece> pieces) {
  size_t all = 0;
  for (const RoutePiece& piece : pieces) all += piece_bytes(piece);
  return tree_chunk_bytes(all, 64);
}

// Leaders are the first of each run. A contribution comes to its leader when the sum so far does. Small chunks share a
// step.
void sum_by_tree(RoutePlanner& plan, const Topology& topology) {
  const auto runs = topology.runs();
  const int n = topology.num_ranks(), num_runs = static_cast<int>(runs.size()), last = runs.back().front();
  const auto leader_of = [&](int owner) {
    const auto after = std::ranges::upper_bound(runs, owner, {}, [](const auto& run) { return run.front(); });
    return (after - 1)->front();
  };
  size_t before = 0;  // bytes
  for (size_t p = 0; p < plan.num_pieces(); ++p) {
    for (const size_t chunk : plan.chunks_of(p)) {
      const auto start = static_cast<int>(before / plan.most_bytes());
      before += plan.chunk(chunk).bytes;
      for (int k = 0; k < num_runs; ++k) {
        const std::vector<int>& run = runs[static_cast<size_t>(k)];
        for (const int rank : run) plan.send(start + k, rank, run.front(), chunk, rank, rank + 1);
        if (k > 0) plan.send(start + k, runs[static_cast<size_t>(k) - 1].front(), run.front(), chunk, 0, run.front());
      }
      std::vector<int> told{last};
      for (const int owner : plan.piece(p).owners) {
        const int leader = topology.crosses(owner, last) ? leader_of(owner) : last;
        if (std::ranges::find(told, leader) == told.end()) {
          plan.send(start + num_runs, last, leader, chunk, 0, n);
          told.push_back(leader);
        }
        plan.send(start + num_runs + (leader == last ? 0 : 1), leader, owner, chunk, 0, n);
      }
    }
  }
}

}  // namespace

RoutePlan plan_sum(Route route, const Topology& topology, std::span<const RoutePiece> pieces, OneRank only) {
  RoutePlanner plan(topology, pieces, route == Route::kTree ? sum_chunk_bytes(pieces) : 0, only);
  switch (route) {
    case Route::kDirect:
      sum_directly(plan, topology.num_ranks());
      break;
    case Route::kRing:
      sum_by_ring(plan, topology.num_ranks());
      break;
    case Route::kHierarchical:
      sum_by_nodes(plan, topology);
      break;
    case Route::kTree:
      sum_by_tree(plan, topology);
      break;
  }
  return std::move(plan).finish();
}

}  // namespace tandem
