// The ways in which weights are gathered and gradients summed between the ranks of a group, as plans: which message
// goes from whom to whom, and when. Every way gives the same bits. A gather only copies; and of a sum only its
// beginning, ((r0 + r1) + r2) + ..., is ever passed on, or a rank's own contribution, so there is no other order in
// which it could be added up (the contract of collectives.h). Plans are plain data: route_runner.h carries them out,
// link_model.h tells how long they take. docs/communication.md compares them.
//   direct        every part straight to whoever needs it; one step
//   ring          gathers pass parts from neighbour to neighbour; sums run from rank 0 to the last, part after part
//   hierarchical  gathers cross nodes once a node and spread within it; sums are begun within a node and cross once
//   tree          one leader a node, through which everything goes in pipelined chunks of at most 8 MB: leaders of a
//                 gather form a binary tree, those of a sum a path, since a sum has one order
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "parallel/topology.h"

namespace tandem {

enum class Route { kDirect, kRing, kHierarchical, kTree };
inline constexpr Route kRoutes[] = {Route::kDirect, Route::kRing, Route::kHierarchical, Route::kTree};
std::string_view name_of(Route route);
std::optional<Route> route_named(std::string_view name);  // nothing: "auto" and anything else

inline constexpr size_t kMostTreeMessage = 8'000'000;  // bytes

// What belongs together: in a gather one rank's part, in a sum what `owners` keep (several where there are copies).
struct RoutePiece {
  std::vector<int> owners;       // ascending
  std::vector<size_t> segments;  // bytes of each stretch of memory; may be 0
};

struct RouteChunk {
  size_t piece, segment, offset, bytes;
};

// The chunk's sum over the contributions of ranks [first, last): one rank's own, or from rank 0 on. In a gather both
// are 0: the chunk itself.
struct RouteMessage {
  int step, from, to;
  size_t chunk;
  int first = 0, last = 0;
};

// Ranks enter steps in ascending order, those that have messages in them. Messages of one step from one rank to another
// keep the order in which they are listed.
struct RoutePlan {
  int num_ranks = 0;
  std::vector<RoutePiece> pieces;
  std::vector<RouteChunk> chunks;
  std::vector<RouteMessage> messages;  // by step
};

// With one rank's number: its part of the plan, the messages that it sends or receives.
using OneRank = std::optional<int>;

// Every rank gets every piece; each has one owner, who has it.
RoutePlan plan_gather(Route route, const Topology& topology, std::span<const RoutePiece> pieces, OneRank only = {});
// Every rank has a contribution to each piece; the sum gets to its owners. A piece of several owners has one in each
// equal share of the ranks.
RoutePlan plan_sum(Route route, const Topology& topology, std::span<const RoutePiece> pieces, OneRank only = {});

struct HopCount {
  int64_t messages = 0, bytes = 0;
};
struct PlanTraffic {
  HopCount local, across;  // within nodes, between nodes
  int64_t largest_message = 0;
};
PlanTraffic traffic_of(const RoutePlan& plan, const Topology& topology);

}  // namespace tandem
