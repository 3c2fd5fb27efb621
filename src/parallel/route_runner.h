// Carries out the plans of routes.h over a communicator. Every rank of the group calls the same function with its part
// of the same plan. Errors are the communicator's, which name the operation.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "parallel/routes.h"

namespace tandem {

// What this rank sent, and how long it was in exchanges in which something of its own crossed between nodes.
struct RouteTraffic {
  HopCount local, across;
  int64_t largest_message = 0;  // bytes
  double across_seconds = 0;

  void add(const RouteTraffic& more);
};

// Sums where the values lie.
struct Arithmetic {
  std::function<std::shared_ptr<float>(size_t count)> room;
  std::function<void(std::span<float> to, std::span<const float> from)> add;  // to += from
};
Arithmetic host_arithmetic();

// A rank's stretches of memory of each piece, by segment.
template <class T>
using Segments = std::vector<std::span<T>>;

// pieces[p] receives piece p; this rank's own lies in its place already.
void run_gather(Communicator& group, std::string_view operation, const RoutePlan& mine, const Topology& topology,
                std::span<const Segments<std::byte>> pieces, RouteTraffic& traffic);

// contributions[p] is what this rank adds to piece p; `sum` receives the piece that it owns (in the plan, exactly one)
// and must not overlap them.
void run_sum(Communicator& group, std::string_view operation, const RoutePlan& mine, const Topology& topology,
             std::span<const Segments<const float>> contributions, const Segments<float>& sum,
             const Arithmetic& arithmetic, RouteTraffic& traffic);

}  // namespace tandem
