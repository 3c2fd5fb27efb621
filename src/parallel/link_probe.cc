#include "parallel/link_probe.h"

#include <algorithm>
#include <chrono>
#include <optional>

#include "parallel/collectives.h"

namespace tandem {
namespace {

constexpr int kPings = 20, kBurst = 64, kLargeMessages = 2;
constexpr size_t kLargeBytes = 4'000'000;
constexpr double kLeastSeconds = 1e-9;  // clocks are coarse

// Seconds that one exchange of the pair takes, the least of some: `messages` of `bytes` from one to the other, and a
// byte back.
double round_trip(Communicator& world, int peer, bool first, int messages, size_t bytes, int times) {
  std::vector<std::byte> memory(static_cast<size_t>(messages) * bytes), answer(1);
  double least = 1e9;
  for (int i = 0; i < times; ++i) {
    std::vector<SendPart> sends;
    std::vector<ReceivePart> receives;
    for (int m = 0; m < messages; ++m) {
      const auto part = std::span(memory).subspan(static_cast<size_t>(m) * bytes, bytes);
      first ? sends.push_back({peer, part}) : receives.push_back({peer, part});
    }
    const SendPart back{peer, answer};
    const ReceivePart from{peer, answer};
    const auto start = std::chrono::steady_clock::now();
    world.exchange("probe of a link", sends, receives);
    if (first) {
      world.exchange("probe of a link", {}, {&from, 1});
    } else {
      world.exchange("probe of a link", {&back, 1}, {});
    }
    least = std::min(least, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return least;
}

// Of the link between this rank and the other; the one that begins measures.
Link measure_pair(Communicator& world, int peer) {
  const bool first = world.rank() < peer;
  const double one = round_trip(world, peer, first, 1, 1, kPings);
  const double burst = round_trip(world, peer, first, kBurst, 1, kPings / 4);
  const double large = round_trip(world, peer, first, kLargeMessages, kLargeBytes, 2);
  Link link;
  link.message_s = std::max((burst - one) / (kBurst - 1), kLeastSeconds);
  link.latency_s = std::max(one / 2 - link.message_s, kLeastSeconds);
  const double moving = large - one - (kLargeMessages - 1) * link.message_s;
  link.bytes_per_s = static_cast<double>(kLargeMessages * kLargeBytes) / std::max(moving, kLeastSeconds);
  return link;
}

Link slower(const Link& a, const Link& b) {
  return {std::max(a.latency_s, b.latency_s), std::max(a.message_s, b.message_s),
          std::min(a.bytes_per_s, b.bytes_per_s)};
}

using Pairs = std::vector<std::pair<int, int>>;

// Pairs share no rank and are measured at once.
void measure_pairs(Communicator& world, const Pairs& pairs, std::optional<Link>& slowest) {
  Link mine;
  for (const auto& [a, b] : pairs)
    if (world.rank() == a || world.rank() == b) mine = measure_pair(world, world.rank() == a ? b : a);
  const std::vector<Link> all = all_gather_values(world, "probe of the links", mine);
  for (const auto& [a, b] : pairs) {
    const Link& link = all[static_cast<size_t>(a)];
    slowest = slowest ? slower(*slowest, link) : link;
  }
}

}  // namespace

Links measure_links(Communicator& world, const Topology& topology) {
  const auto nodes = topology.nodes();
  Pairs within, even, odd;
  for (size_t node = 0; node < nodes.size(); ++node) {
    if (nodes[node].size() > 1) within.emplace_back(nodes[node][0], nodes[node][1]);
    if (node + 1 < nodes.size()) (node % 2 == 0 ? even : odd).emplace_back(nodes[node][0], nodes[node + 1][0]);
  }
  std::optional<Link> local, across;
  if (!within.empty()) measure_pairs(world, within, local);
  for (const Pairs& pairs : {even, odd})
    if (!pairs.empty()) measure_pairs(world, pairs, across);
  Links links;
  if (local) links.local = *local;
  if (across) links.across = *across;
  links.measured = local || across;
  return links;
}

}  // namespace tandem
