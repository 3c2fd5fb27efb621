#include "parallel/topology.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <string>

#include "observe/host_info.h"
#include "parallel/collectives.h"

namespace tandem {
namespace {

// Nodes by any names, numbered in the order in which ranks meet them.
template <class Name>
Topology numbered_nodes(const std::vector<Name>& names) {
  std::map<Name, int> number;
  Topology topology;
  for (const Name& name : names)
    topology.node_of.push_back(number.emplace(name, static_cast<int>(number.size())).first->second);
  return topology;
}

std::string own_node() {
  for (const char* variable : {"TANDEM_NODE", "SLURM_NODEID"})
    if (const char* value = std::getenv(variable); value != nullptr && *value != 0) return value;
  return host_name();
}

}  // namespace

int Topology::num_nodes() const { return node_of.empty() ? 0 : *std::max_element(node_of.begin(), node_of.end()) + 1; }

std::vector<std::vector<int>> Topology::nodes() const {
  std::vector<std::vector<int>> all(static_cast<size_t>(num_nodes()));
  for (int rank = 0; rank < num_ranks(); ++rank)
    all[static_cast<size_t>(node_of[static_cast<size_t>(rank)])].push_back(rank);
  return all;
}

std::vector<std::vector<int>> Topology::runs() const {
  std::vector<std::vector<int>> all;
  for (int rank = 0; rank < num_ranks(); ++rank) {
    if (rank == 0 || crosses(rank - 1, rank)) all.emplace_back();
    all.back().push_back(rank);
  }
  return all;
}

Topology Topology::of(std::span<const int> ranks) const {
  std::vector<int> names;
  for (const int rank : ranks) names.push_back(node_of.at(static_cast<size_t>(rank)));
  return numbered_nodes(names);
}

Topology even_topology(int num_ranks, int ranks_per_node) {
  Topology topology;
  for (int rank = 0; rank < num_ranks; ++rank)
    topology.node_of.push_back(ranks_per_node > 0 ? rank / ranks_per_node : 0);
  return topology;
}

Topology discover_topology(Communicator& world, int ranks_per_node) {
  if (ranks_per_node > 0 || world.size() == 1) return even_topology(world.size(), ranks_per_node);
  return numbered_nodes(all_gather_text(world, "nodes of the ranks", own_node()));
}

}  // namespace tandem
