// How long exchanges take on links of given figures: each rank has a clock, each port is busy for a while, nothing
// sleeps. What a plan costs (route_choice.h), and how tests shape links. Deterministic; thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "parallel/routes.h"

namespace tandem {

struct MessageSize {
  int peer;
  size_t bytes;
};
struct ExchangeSizes {
  std::vector<MessageSize> sends, receives;
};
// A rank's exchanges, one after another.
using ExchangeList = std::vector<ExchangeSizes>;

// What each rank does to carry out a plan.
std::vector<ExchangeList> exchanges_of(const RoutePlan& plan);

// Seconds until the last rank is through; all begin at 0. A rank offers all messages of an exchange at once, in their
// order, and is through when its own have left and those for it have come. A message waits for its sender's port (a
// rank's within a node, a node's across), holds it for message_s + bytes / bytes_per_s, is at the other side latency_s
// after it began, and holds the receiver's port as long; a port serves whoever comes first. Sends do not wait for the
// receiver to ask. check() fails where messages do not pair.
double seconds_of(const std::vector<ExchangeList>& ranks, const RankNetwork& network);
double seconds_of(const RoutePlan& plan, const RankNetwork& network);

}  // namespace tandem
