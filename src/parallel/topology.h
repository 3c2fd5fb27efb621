// Which ranks share a machine, and what the links between them carry. Plain values; thread-safe.
#pragma once

#include <span>
#include <vector>

#include "parallel/communicator.h"

namespace tandem {

struct Topology {
  std::vector<int> node_of;  // by rank; nodes are numbered by their first rank

  int num_ranks() const { return static_cast<int>(node_of.size()); }
  int num_nodes() const;
  bool crosses(int a, int b) const { return node_of[static_cast<size_t>(a)] != node_of[static_cast<size_t>(b)]; }
  // Its ranks by node, ascending.
  std::vector<std::vector<int>> nodes() const;
  // Stretches of consecutive ranks of one node, in rank order: what can be added up before anything crosses.
  std::vector<std::vector<int>> runs() const;
  // Of a group of these ranks.
  Topology of(std::span<const int> ranks) const;
};

// Every so many consecutive ranks a node; 0: all of them one.
Topology even_topology(int num_ranks, int ranks_per_node);

// From where the ranks say they run: TANDEM_NODE if the launcher sets it, else SLURM_NODEID, else the host's name.
// ranks_per_node > 0 overrides it. All ranks call it together; without an override it is one exchange of names.
Topology discover_topology(Communicator& world, int ranks_per_node);

// A message of s bytes holds its sender's port for message_s + s / bytes_per_s and arrives latency_s later (LogGP's L,
// g and G; Alexandrov et al. 1995).
struct Link {
  double latency_s = 0;    // from one rank to the other
  double message_s = 0;    // of a message, besides its bytes
  double bytes_per_s = 1;  // > 0
};
struct Links {
  Link local{5e-6, 2e-6, 5e9};   // within a node: a port each way a rank
  Link across{5e-5, 5e-6, 1e9};  // between nodes: a port each way a node, which its ranks share
  bool measured = false;         // otherwise the round figures above
};

// What a network is to a group: who is where, and how quick.
struct RankNetwork {
  Topology topology;
  Links links;
};

}  // namespace tandem
