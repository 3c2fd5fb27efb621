// Links of given figures: times by hand, and each route chosen where what ranks really exchange is through first.
#include "parallel/link_model.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "parallel/communicator_local.h"
#include "parallel/cross_node_switch.h"
#include "parallel/link_probe.h"
#include "parallel/route_choice.h"
#include "parallel/route_runner.h"

namespace tandem {
namespace {

// A message of 100 bytes within a node holds its ports for 0.5 + 1 s and begins to arrive after 1 s; across, for 2 s
// and after 10 s.
RankNetwork slow_network(Topology topology) {
  return {std::move(topology), {.local = {1, 0.5, 100}, .across = {10, 0, 50}}};
}

TEST(LinkModel, AMessageByHand) {
  EXPECT_DOUBLE_EQ(seconds_of({{{{{1, 100}}, {}}}, {{{}, {{0, 100}}}}}, slow_network(even_topology(2, 2))), 2.5);
  EXPECT_DOUBLE_EQ(seconds_of({{{{{1, 100}}, {}}}, {{{}, {{0, 100}}}}}, slow_network(even_topology(2, 1))), 12);
}

TEST(LinkModel, APortServesOneMessageAtATime) {
  // Rank 0 sends to 1 and 2: the second begins at 1.5 and is there at 1.5 + 1 + 1.5.
  EXPECT_DOUBLE_EQ(seconds_of({{{{{1, 100}, {2, 100}}, {}}}, {{{}, {{0, 100}}}}, {{{}, {{0, 100}}}}},
                              slow_network(even_topology(3, 3))),
                   4);
  // Both send to 0: the second waits for its port, from 2.5 to 4.
  EXPECT_DOUBLE_EQ(seconds_of({{{{}, {{1, 100}, {2, 100}}}}, {{{{0, 100}}, {}}}, {{{{0, 100}}, {}}}},
                              slow_network(even_topology(3, 3))),
                   4);
  // Ranks 0 and 1 share their node's port: 0 → 2 holds it until 2, 1 → 3 until 4, and comes 10 s after 2.
  EXPECT_DOUBLE_EQ(seconds_of({{{{{2, 100}}, {}}}, {{{{3, 100}}, {}}}, {{{}, {{0, 100}}}}, {{{}, {{1, 100}}}}},
                              slow_network(even_topology(4, 2))),
                   14);
}

TEST(LinkModel, ExchangesFollowEachOther) {
  // 0 → 1 is there at 2.5; 1 → 0 then at 5.
  EXPECT_DOUBLE_EQ(seconds_of({{{{{1, 100}}, {}}, {{}, {{1, 100}}}}, {{{}, {{0, 100}}}, {{{0, 100}}, {}}}},
                              slow_network(even_topology(2, 2))),
                   5);
}

TEST(LinkModel, RoutesByHand) {
  std::vector<RoutePiece> pieces;
  for (int rank = 0; rank < 4; ++rank) pieces.push_back({{rank}, {100}});
  const RankNetwork network = slow_network(even_topology(4, 2));
  // Direct: each node's port sends four messages of 2 s; the last begins at 6, arrives at 16 and is through at 18.
  EXPECT_DOUBLE_EQ(seconds_of(plan_gather(Route::kDirect, network.topology, pieces), network), 18);
  // Hierarchical: the second piece crosses from 2 to 4, is there at 14, and 2.5 s later at the neighbour.
  EXPECT_DOUBLE_EQ(seconds_of(plan_gather(Route::kHierarchical, network.topology, pieces), network), 16.5);
  // Ring: steps are 12 (across), and then each rank waits for the one that waited for a crossing.
  EXPECT_DOUBLE_EQ(seconds_of(plan_gather(Route::kRing, network.topology, pieces), network), 26.5);
}

// What a rank sends is written down with its sizes, so that the same exchanges can be timed on any links.
class RecordingCommunicator : public Communicator {
 public:
  RecordingCommunicator(Communicator& inner, ExchangeList& record)
      : Communicator(inner.rank(), inner.size()), inner_(inner), record_(record) {}
  std::unique_ptr<Communicator> make_part(std::span<const int> ranks) override { return inner_.split(ranks); }

 protected:
  void transfer(std::string_view operation, std::span<const SendPart> sends,
                std::span<const ReceivePart> receives) override {
    ExchangeSizes& sizes = record_.emplace_back();
    for (const SendPart& part : sends) sizes.sends.push_back({part.peer, part.bytes.size()});
    for (const ReceivePart& part : receives) sizes.receives.push_back({part.peer, part.bytes.size()});
    inner_.exchange(operation, sends, receives);
  }

 private:
  Communicator& inner_;
  ExchangeList& record_;
};

// Of a sum or gather of `bytes` a piece, a piece a rank, as the ranks carry it out.
double measured(const RankNetwork& network, Route route, bool sums, size_t bytes) {
  const int n = network.topology.num_ranks();
  std::vector<RoutePiece> pieces;
  for (int rank = 0; rank < n; ++rank) pieces.push_back({{rank}, {bytes}});
  std::vector<ExchangeList> records(static_cast<size_t>(n));
  run_ranks(n, [&](Communicator& group) {
    RecordingCommunicator recording(group, records[static_cast<size_t>(group.rank())]);
    std::vector<float> memory(bytes / sizeof(float) * static_cast<size_t>(n)), result(bytes / sizeof(float));
    std::vector<Segments<std::byte>> places;
    std::vector<Segments<const float>> terms;
    for (size_t p = 0; p < pieces.size(); ++p) {
      const auto part = std::span(memory).subspan(p * result.size(), result.size());
      places.push_back({std::as_writable_bytes(part)});
      terms.push_back({part});
    }
    RouteTraffic traffic;
    const auto plan = sums ? plan_sum : plan_gather;
    const RoutePlan mine = plan(route, network.topology, pieces, group.rank());
    if (sums) {
      run_sum(recording, "sum", mine, network.topology, terms, {result}, host_arithmetic(), traffic);
    } else {
      run_gather(recording, "gather", mine, network.topology, places, traffic);
    }
  });
  return seconds_of(records, network);
}

struct Shape {
  const char* name;
  Topology topology;
  Links links;
  size_t bytes;  // a piece
  bool sums;
  Route expected;
};

class ShapedLinks : public testing::TestWithParam<Shape> {};

TEST_P(ShapedLinks, TheRouteChosenIsTheQuickestThere) {
  const Shape& shape = GetParam();
  const RankNetwork network{shape.topology, shape.links};
  std::vector<RoutePiece> pieces;
  for (int rank = 0; rank < shape.topology.num_ranks(); ++rank) pieces.push_back({{rank}, {shape.bytes}});
  const RouteChoice choice = shape.sums ? choose_sum(network, pieces) : choose_gather(network, pieces);
  EXPECT_EQ(name_of(choice.route), name_of(shape.expected));
  for (const Route route : kRoutes) {
    const double seconds = measured(network, route, shape.sums, shape.bytes);
    EXPECT_DOUBLE_EQ(seconds, choice.seconds[static_cast<size_t>(route)]) << name_of(route);
    RecordProperty(std::string(name_of(route)), fmt::format("{:.6f} s", seconds));
    if (route != shape.expected) {
      EXPECT_GT(seconds, 1.02 * choice.seconds[static_cast<size_t>(shape.expected)]) << name_of(route);
    }
  }
}

constexpr Link kQuick{2e-5, 1e-6, 20e9}, kSlow{5e-5, 2e-6, 1e9}, kFar{1e-2, 2e-6, 1e9};
// A tenth of such rates, so that a megabyte is much.
constexpr Link kNearby{2e-5, 1e-6, 5e8}, kThin{5e-5, 2e-6, 1e8};

INSTANTIATE_TEST_SUITE_P(
    Routes, ShapedLinks,
    testing::Values(
        // Far apart and little to say: crossings one after another cost most.
        Shape{"far_sum", even_topology(4, 2), {kQuick, kFar}, 1000, true, Route::kDirect},
        // All links alike: a ring uses every one of them all the time, and waits for no second phase.
        Shape{"alike_gather", even_topology(8, 2), {kThin, kThin}, 200'000, false, Route::kRing},
        Shape{"alike_sum", even_topology(8, 4), {kThin, kThin}, 200'000, true, Route::kRing},
        // Slow between nodes, and messages of a middling size: cross once, in few steps.
        Shape{"middling_gather", even_topology(8, 4), {kQuick, kSlow}, 50'000, false, Route::kHierarchical},
        Shape{"middling_sum", even_topology(16, 8), {kQuick, kSlow}, 10'000, true, Route::kHierarchical},
        // Slow between nodes, and much to send: chunks, so that crossing and what goes on within nodes overlap.
        Shape{"large_gather", even_topology(8, 4), {kNearby, kThin}, 1'000'000, false, Route::kTree},
        Shape{"large_sum", even_topology(8, 4), {kNearby, kThin}, 1'000'000, true, Route::kTree}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(RouteChoice, OnOneNodeEverythingGoesDirectlyAndNothingIsWeighed) {
  const RankNetwork network{even_topology(4, 0), {}};
  const std::vector<RoutePiece> pieces{{{0}, {4000}}, {{1}, {4000}}, {{2}, {4000}}, {{3}, {4000}}};
  const RouteChoice choice = choose_sum(network, pieces);
  EXPECT_EQ(choice.route, Route::kDirect);
  EXPECT_EQ(choice.bytes, 16'000);
  EXPECT_EQ(choice.seconds, (std::array<double, 4>{}));
}

TEST(RouteChoice, WhatIsAskedForIsTaken) {
  const RankNetwork network{even_topology(4, 2), {}};
  const std::vector<RoutePiece> pieces{{{0}, {4000}}, {{1}, {4000}}, {{2}, {4000}}, {{3}, {4000}}};
  for (const Route route : kRoutes) {
    const RouteChoice choice = choose_gather(network, pieces, route);
    EXPECT_EQ(choice.route, route);
    EXPECT_TRUE(choice.asked);
    EXPECT_NE(route_table("actor", network, {{{Component::kMlp, "gather", choice}}}).find(name_of(route)),
              std::string::npos);
  }
}

TEST(RouteChoice, ComponentsByName) {
  EXPECT_EQ(component_of("embed"), Component::kEmbedding);
  EXPECT_EQ(component_of("final_norm"), Component::kEmbedding);
  EXPECT_EQ(component_of("layers.11.qkv"), Component::kAttention);
  EXPECT_EQ(component_of("layers.11.input_norm"), Component::kAttention);
  EXPECT_EQ(component_of("layers.0.post_norm"), Component::kMlp);
  EXPECT_EQ(component_of("layers.0.gate_up_bias"), Component::kMlp);
  EXPECT_EQ(component_of("layers.0.down"), Component::kMlp);
}

TEST(CrossNodeSwitch, GoesOverAboveTheShareAndBackAfterThreeLowSteps) {
  constexpr SwitchOptions kOptions{.share = 0.4, .back = 0.3, .steps = 3};
  const std::vector<std::pair<double, bool>> steps{{0.1, false},  {0.4, false},  // not above
                                                   {0.41, true},  {0.35, true}, {0.2, true},
                                                   {0.2, true},   {0.3, true},                 // not below: counts anew
                                                   {0.2, true},   {0.29, true}, {0.1, false},  // three in a row
                                                   {0.35, false}, {0.9, true}};
  CrossNodeSwitch now;
  for (const auto& [share, on] : steps) {
    now = after_step(now, share, kOptions);
    EXPECT_EQ(now.on, on) << share;
  }
}

TEST(Topology, OfAGroupAndItsRuns) {
  const Topology topology{{0, 0, 1, 1, 0, 2}};
  EXPECT_EQ(topology.num_nodes(), 3);
  EXPECT_EQ(topology.nodes(), (std::vector<std::vector<int>>{{0, 1, 4}, {2, 3}, {5}}));
  EXPECT_EQ(topology.runs(), (std::vector<std::vector<int>>{{0, 1}, {2, 3}, {4}, {5}}));
  EXPECT_EQ(topology.of(std::vector<int>{2, 3, 5}).node_of, (std::vector<int>{0, 0, 1}));
  EXPECT_EQ(even_topology(5, 2).node_of, (std::vector<int>{0, 0, 1, 1, 2}));
  EXPECT_EQ(even_topology(3, 0).num_nodes(), 1);
}

TEST(Topology, ComesFromTheHostsUnlessItIsGiven) {
  run_ranks(4, [](Communicator& world) {
    EXPECT_EQ(discover_topology(world, 0).num_nodes(), 1);  // threads of one host
    EXPECT_EQ(world.traffic().calls, 2);
    EXPECT_EQ(discover_topology(world, 2).node_of, (std::vector<int>{0, 0, 1, 1}));
    EXPECT_EQ(world.traffic().calls, 2);
  });
}

TEST(LinkProbe, MeasuresEachKindOfLinkThatThereIs) {
  run_ranks(4, [](Communicator& world) {
    const Links links = measure_links(world, even_topology(4, 2));
    EXPECT_TRUE(links.measured);
    for (const Link& link : {links.local, links.across}) {
      EXPECT_GT(link.latency_s, 0);
      EXPECT_LT(link.latency_s, 1);
      EXPECT_GT(link.bytes_per_s, 1e6);
      EXPECT_NE(link.bytes_per_s, Links{}.local.bytes_per_s);
    }
    EXPECT_DOUBLE_EQ(measure_links(world, even_topology(4, 4)).across.bytes_per_s, Links{}.across.bytes_per_s);
  });
}

}  // namespace
}  // namespace tandem
