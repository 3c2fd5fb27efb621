#include "parallel/routes.h"

#include <algorithm>
#include <numeric>

#include "parallel/route_plan.h"

namespace tandem {

std::string_view name_of(Route route) {
  constexpr std::string_view kNames[] = {"direct", "ring", "hierarchical", "tree"};
  return kNames[static_cast<size_t>(route)];
}

std::optional<Route> route_named(std::string_view name) {
  for (const Route route : kRoutes)
    if (name_of(route) == name) return route;
  return {};
}

RoutePlanner::RoutePlanner(const Topology& topology, std::span<const RoutePiece> pieces, size_t most_bytes,
                           OneRank only)
    : most_bytes_(most_bytes), only_(only) {
  plan_.num_ranks = topology.num_ranks();
  plan_.pieces.assign(pieces.begin(), pieces.end());
  chunks_of_.resize(pieces.size());
  for (size_t p = 0; p < pieces.size(); ++p) {
    check(!pieces[p].owners.empty(), "a piece without an owner");
    for (size_t s = 0; s < pieces[p].segments.size(); ++s) {
      const size_t whole = pieces[p].segments[s];
      for (size_t offset = 0; offset < whole;) {
        const size_t bytes = most_bytes == 0 ? whole : std::min(most_bytes, whole - offset);
        chunks_of_[p].push_back(plan_.chunks.size());
        plan_.chunks.push_back({p, s, offset, bytes});
        offset += bytes;
      }
    }
  }
}

RoutePlan RoutePlanner::finish() && {
  std::stable_sort(plan_.messages.begin(), plan_.messages.end(),
                   [](const RouteMessage& a, const RouteMessage& b) { return a.step < b.step; });
  return std::move(plan_);
}

size_t piece_bytes(const RoutePiece& piece) {
  return std::accumulate(piece.segments.begin(), piece.segments.end(), size_t{0});
}

size_t tree_chunk_bytes(size_t bytes, size_t share) {
  constexpr size_t kLeast = 65'536, kUnit = 64;  // a whole number of values of any type
  return std::clamp((bytes / share + kUnit - 1) / kUnit * kUnit, kLeast, kMostTreeMessage);
}

PlanTraffic traffic_of(const RoutePlan& plan, const Topology& topology) {
  PlanTraffic traffic;
  for (const RouteMessage& message : plan.messages) {
    const auto bytes = static_cast<int64_t>(plan.chunks[message.chunk].bytes);
    HopCount& hop = topology.crosses(message.from, message.to) ? traffic.across : traffic.local;
    ++hop.messages, hop.bytes += bytes;
    traffic.largest_message = std::max(traffic.largest_message, bytes);
  }
  return traffic;
}

}  // namespace tandem
