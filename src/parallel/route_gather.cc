// Plans that bring every piece to every rank.
#include <algorithm>

#include "parallel/route_plan.h"

namespace tandem {
namespace {

void gather_directly(RoutePlanner& plan, const Topology& topology) {
  for (size_t p = 0; p < plan.num_pieces(); ++p)
    for (int rank = 0; rank < topology.num_ranks(); ++rank) plan.send_piece(0, plan.piece(p).owners[0], rank, p);
}

// Node by node, so that as few hops as possible cross.
void gather_by_ring(RoutePlanner& plan, const Topology& topology) {
  std::vector<int> ring;
  for (const std::vector<int>& node : topology.nodes()) ring.insert(ring.end(), node.begin(), node.end());
  const size_t n = ring.size();
  for (size_t p = 0; p < plan.num_pieces(); ++p) {
    const auto start = static_cast<size_t>(std::ranges::find(ring, plan.piece(p).owners[0]) - ring.begin());
    for (size_t step = 0; step + 1 < n; ++step)
      plan.send_piece(static_cast<int>(step), ring[(start + step) % n], ring[(start + step + 1) % n], p);
  }
}

// Across to one rank of every other node, by turns, which tells its neighbours.
void gather_by_nodes(RoutePlanner& plan, const Topology& topology) {
  const auto nodes = topology.nodes();
  for (size_t p = 0; p < plan.num_pieces(); ++p) {
    const int owner = plan.piece(p).owners[0];
    const auto home = static_cast<size_t>(topology.node_of[static_cast<size_t>(owner)]);
    const auto place = static_cast<size_t>(std::ranges::find(nodes[home], owner) - nodes[home].begin());
    for (size_t node = 0; node < nodes.size(); ++node) {
      const bool here = node == home;
      const int entry = here ? owner : nodes[node][place % nodes[node].size()];
      plan.send_piece(0, owner, entry, p);
      for (const int rank : nodes[node]) plan.send_piece(here ? 0 : 1, entry, rank, p);
    }
  }
}

// A chunk's way through the tree, begun at `step`.
class TreeWay {
 public:
  TreeWay(RoutePlanner& plan, const Topology& topology) : plan_(plan), topology_(topology), nodes_(topology.nodes()) {}

  void spread(int step, int owner, size_t chunk) {
    const auto home = static_cast<size_t>(topology_.node_of[static_cast<size_t>(owner)]);
    const int leader = nodes_[home][0];
    plan_.send(step, owner, leader, chunk);
    visit(owner == leader ? step : step + 1, home, nodes_.size(), owner, chunk);
  }

 private:
  // At `step` the node's leader has it. It came from node `from`.
  void visit(int step, size_t node, size_t from, int owner, size_t chunk) {
    const auto across = [&](size_t next) {
      if (next >= nodes_.size() || next == from) return;
      plan_.send(step, nodes_[node][0], nodes_[next][0], chunk);
      visit(step + 1, next, node, owner, chunk);
    };
    if (node > 0) across((node - 1) / 2);
    across(2 * node + 1);
    across(2 * node + 2);
    within(step, nodes_[node], 0, nodes_[node].size(), owner, chunk);
  }

  // A binomial tree: members[begin], which has it, tells the middle one of [begin, end), and so on in both halves.
  void within(int step, const std::vector<int>& members, size_t begin, size_t end, int owner, size_t chunk) {
    if (end - begin < 2) return;
    const size_t middle = begin + (end - begin + 1) / 2;
    if (members[middle] != owner) plan_.send(step, members[begin], members[middle], chunk);
    within(step + 1, members, begin, middle, owner, chunk);
    within(step + 1, members, middle, end, owner, chunk);
  }

  RoutePlanner& plan_;
  const Topology& topology_;
  std::vector<std::vector<int>> nodes_;
};

// A 16th of the greatest piece: all pieces are under way at once, in both directions of every link.
size_t gather_chunk_bytes(std::span<const RoutePiece> pieces) {
  size_t greatest = 0;
  for (const RoutePiece& piece : pieces) greatest = std::max(greatest, piece_bytes(piece));
  return tree_chunk_bytes(greatest, 16);
}

void gather_by_tree(RoutePlanner& plan, const Topology& topology) {
  TreeWay way(plan, topology);
  for (size_t p = 0; p < plan.num_pieces(); ++p) {
    int step = 0;
    for (const size_t chunk : plan.chunks_of(p)) way.spread(step++, plan.piece(p).owners[0], chunk);
  }
}

}  // namespace

RoutePlan plan_gather(Route route, const Topology& topology, std::span<const RoutePiece> pieces, OneRank only) {
  for (const RoutePiece& piece : pieces) check(piece.owners.size() == 1, "what is gathered has one owner");
  RoutePlanner plan(topology, pieces, route == Route::kTree ? gather_chunk_bytes(pieces) : 0, only);
  switch (route) {
    case Route::kDirect:
      gather_directly(plan, topology);
      break;
    case Route::kRing:
      gather_by_ring(plan, topology);
      break;
    case Route::kHierarchical:
      gather_by_nodes(plan, topology);
      break;
    case Route::kTree:
      gather_by_tree(plan, topology);
      break;
  }
  return std::move(plan).finish();
}

}  // namespace tandem
