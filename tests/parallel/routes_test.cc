// Every route brings every rank what it must have, by plans that can add up in one order only.
#include "parallel/routes.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <numeric>
#include <set>
#include <thread>

#include "parallel/collectives.h"
#include "parallel/communicator_local.h"
#include "parallel/route_runner.h"
#include "processes.h"

namespace tandem {
namespace {

using namespace std::chrono_literals;

// Two nodes, four nodes, uneven nodes, nodes whose ranks do not follow each other, one node, one rank.
const std::vector<Topology> kTopologies = {even_topology(8, 4), even_topology(8, 2),        {{0, 0, 0, 1, 1, 2}},
                                           {{0, 1, 0, 1}},      {{0, 0, 1, 1, 0, 2, 2, 1}}, even_topology(5, 0),
                                           even_topology(3, 1), even_topology(1, 0)};

// A piece a rank, of its own number of bytes: empty segments, and more than a tree's chunk.
std::vector<RoutePiece> piece_a_rank(int ranks) {
  std::vector<RoutePiece> pieces;
  for (int rank = 0; rank < ranks; ++rank) {
    const auto r = static_cast<size_t>(rank);
    pieces.push_back({{rank}, {400 + 40 * r, 0, r % 3 == 1 ? size_t{0} : 80'000 + 4 * r}});
  }
  return pieces;
}

// Copies of `shards` pieces: rank r keeps piece r mod shards.
std::vector<RoutePiece> copied_pieces(int ranks, int shards) {
  std::vector<RoutePiece> pieces = piece_a_rank(shards);
  for (int rank = shards; rank < ranks; ++rank) pieces[static_cast<size_t>(rank % shards)].owners.push_back(rank);
  return pieces;
}

void expect_gather(const RoutePlan& plan) {
  std::vector<std::set<size_t>> has(static_cast<size_t>(plan.num_ranks));  // chunks by rank
  for (size_t c = 0; c < plan.chunks.size(); ++c)
    has[static_cast<size_t>(plan.pieces[plan.chunks[c].piece].owners[0])].insert(c);
  std::vector<std::pair<int, size_t>> arriving;
  int step = 0;
  const auto arrive = [&] {
    for (const auto& [rank, chunk] : arriving)
      EXPECT_TRUE(has[static_cast<size_t>(rank)].insert(chunk).second) << "a chunk comes twice";
    arriving.clear();
  };
  for (const RouteMessage& m : plan.messages) {
    ASSERT_GE(m.step, step);
    if (m.step > step) arrive();
    step = m.step;
    EXPECT_TRUE(has[static_cast<size_t>(m.from)].contains(m.chunk)) << "sent before it is there";
    arriving.emplace_back(m.to, m.chunk);
  }
  arrive();
  for (const auto& chunks : has) EXPECT_EQ(chunks.size(), plan.chunks.size());
}

TEST(Routes, AGatherBringsEveryChunkToEveryRankOnce) {
  for (const Topology& topology : kTopologies)
    for (const Route route : kRoutes) {
      SCOPED_TRACE(name_of(route));
      expect_gather(plan_gather(route, topology, piece_a_rank(topology.num_ranks())));
    }
}

// A sum is passed on as a rank's own contribution or as the beginning of the whole: no other order can come about.
TEST(Routes, OnlyBeginningsOfASumArePassedOn) {
  for (const Topology& topology : kTopologies)
    for (const Route route : kRoutes)
      for (const RouteMessage& m : plan_sum(route, topology, piece_a_rank(topology.num_ranks())).messages)
        EXPECT_TRUE(m.first == 0 || (m.first == m.from && m.last == m.from + 1));
}

// Terms whose float sum depends on the order.
float term(int rank, size_t i) {
  constexpr float kTerms[] = {1.0f, 1e8f, -1e8f, 0.5f};
  return kTerms[(static_cast<size_t>(rank) + i) % 4] + static_cast<float>(rank) * 0.125f;
}

float in_rank_order(int ranks, size_t i) {
  float sum = term(0, i);
  for (int rank = 1; rank < ranks; ++rank) sum += term(rank, i);
  return sum;
}

template <class T>
Segments<T> segments_in(std::vector<float>& memory, const RoutePiece& piece) {
  Segments<T> all;
  size_t offset = 0;
  for (const size_t bytes : piece.segments) {
    std::span<float> part(memory.data() + offset, bytes / sizeof(float));
    if constexpr (std::is_same_v<T, std::byte>) {
      all.push_back(std::as_writable_bytes(part));
    } else {
      all.push_back(part);
    }
    offset += part.size();
  }
  return all;
}

size_t floats_of(const RoutePiece& piece) {
  return std::accumulate(piece.segments.begin(), piece.segments.end(), size_t{0}) / sizeof(float);
}

RouteTraffic gather(Communicator& group, Route route, const Topology& topology, const std::vector<RoutePiece>& pieces) {
  std::vector<std::vector<float>> memory;
  std::vector<Segments<std::byte>> places;
  for (size_t p = 0; p < pieces.size(); ++p) {
    memory.emplace_back(floats_of(pieces[p]), -1.0f);
    if (pieces[p].owners[0] == group.rank())
      for (size_t i = 0; i < memory[p].size(); ++i) memory[p][i] = term(group.rank(), i);
  }
  for (size_t p = 0; p < pieces.size(); ++p) places.push_back(segments_in<std::byte>(memory[p], pieces[p]));
  RouteTraffic traffic;
  const RoutePlan mine = plan_gather(route, topology, pieces, group.rank());
  run_gather(group, "gather", mine, topology, places, traffic);
  for (size_t p = 0; p < pieces.size(); ++p)
    for (size_t i = 0; i < memory[p].size(); ++i)
      check(memory[p][i] == term(pieces[p].owners[0], i), "a wrong value was gathered");
  return traffic;
}

RouteTraffic sum(Communicator& group, Route route, const Topology& topology, const std::vector<RoutePiece>& pieces) {
  std::vector<std::vector<float>> memory;
  std::vector<Segments<const float>> contributions;
  std::vector<float> result;
  Segments<float> places;
  for (const RoutePiece& piece : pieces) {
    memory.emplace_back(floats_of(piece));
    for (size_t i = 0; i < memory.back().size(); ++i) memory.back()[i] = term(group.rank(), i);
  }
  for (size_t p = 0; p < pieces.size(); ++p) {
    contributions.push_back(segments_in<const float>(memory[p], pieces[p]));
    if (std::ranges::find(pieces[p].owners, group.rank()) == pieces[p].owners.end()) continue;
    result.assign(floats_of(pieces[p]), -1.0f);
    places = segments_in<float>(result, pieces[p]);
  }
  RouteTraffic traffic;
  const RoutePlan mine = plan_sum(route, topology, pieces, group.rank());
  run_sum(group, "sum", mine, topology, contributions, places, host_arithmetic(), traffic);
  for (size_t i = 0; i < result.size(); ++i) {
    const float expected = in_rank_order(group.size(), i);
    check(std::memcmp(&result[i], &expected, sizeof expected) == 0, "a sum is not in rank order");
  }
  return traffic;
}

TEST(Routes, AllGiveTheBitsOfRankOrder) {
  for (const Topology& topology : kTopologies)
    for (const Route route : kRoutes)
      run_ranks(
          topology.num_ranks(),
          [&](Communicator& group) {
            gather(group, route, topology, piece_a_rank(group.size()));
            sum(group, route, topology, piece_a_rank(group.size()));
            for (const int shards : {1, 2})
              if (group.size() % 2 == 0) sum(group, route, topology, copied_pieces(group.size(), shards));
          },
          20s);
}

TEST(Routes, AllGiveTheBitsOfRankOrderBetweenProcesses) {
  const Topology topology{{0, 0, 1, 1}};
  const auto statuses = run_processes(4, 20s, [&](int, Communicator& group) {
    for (const Route route : kRoutes) {
      gather(group, route, topology, piece_a_rank(4));
      sum(group, route, topology, piece_a_rank(4));
    }
  });
  EXPECT_EQ(statuses, (std::vector<int>{0, 0, 0, 0}));
}

// Messages within nodes and between them, by hand: ranks 0 and 1 on one node, 2 and 3 on the other, a message a piece.
TEST(Routes, CountsMessagesByHop) {
  const Topology topology = even_topology(4, 2);
  std::vector<RoutePiece> pieces;
  for (int rank = 0; rank < 4; ++rank) pieces.push_back({{rank}, {100}});
  const auto expect = [&](Route route, std::pair<int, int> gathers, std::pair<int, int> sums) {
    SCOPED_TRACE(name_of(route));
    const PlanTraffic g = traffic_of(plan_gather(route, topology, pieces), topology);
    EXPECT_EQ(g.local.messages, gathers.first);
    EXPECT_EQ(g.across.messages, gathers.second);
    EXPECT_EQ(g.across.bytes, 100 * gathers.second);
    const PlanTraffic s = traffic_of(plan_sum(route, topology, pieces), topology);
    EXPECT_EQ(s.local.messages, sums.first);
    EXPECT_EQ(s.across.messages, sums.second);
    EXPECT_EQ(s.largest_message, 100);
  };
  // Each of the 12 ordered pairs of ranks, 8 of which cross.
  expect(Route::kDirect, {4, 8}, {4, 8});
  // Gather: three pieces over each of the four hops, two of which cross. Sum: 0→1→2→3 for each of four pieces, then
  // from 3 to owners 0 and 1 across and to 2 within.
  expect(Route::kRing, {6, 6}, {9, 6});
  // Gather: each piece crosses once and is told to the neighbour on both sides. Sum: on both nodes one contribution a
  // piece is brought to the other rank, the four beginnings cross, and two sums go back.
  expect(Route::kHierarchical, {8, 4}, {8, 6});
  // Gather: ranks 1 and 3 tell their leaders; each piece crosses once; what the leaders did not get from 1 or 3 they
  // tell them: 3 pieces each. Sum: as above, and the last leader's results for 1 and 3 take one more hop each.
  expect(Route::kTree, {8, 4}, {10, 6});
}

TEST(Routes, NoMessageOfATreeIsAboveEightMegabytes) {
  for (const size_t bytes : {size_t{1'000}, size_t{100'000'000}, size_t{3'000'000'000}}) {
    std::vector<RoutePiece> pieces;
    for (int rank = 0; rank < 8; ++rank) pieces.push_back({{rank}, {bytes, bytes / 8 * 4}});
    const Topology topology = even_topology(8, 4);
    for (const auto plan : {plan_gather, plan_sum}) {
      const PlanTraffic traffic = traffic_of(plan(Route::kTree, topology, pieces, {}), topology);
      EXPECT_LE(traffic.largest_message, 8'000'000);
      EXPECT_GT(traffic.across.bytes, 0);
    }
    EXPECT_EQ(traffic_of(plan_sum(Route::kRing, topology, pieces), topology).largest_message,
              static_cast<int64_t>(bytes));
  }
}

// What ranks count while they exchange is what the plan says.
TEST(Routes, WhatIsSentIsWhatWasPlanned) {
  const Topology topology = even_topology(6, 2);
  const std::vector<RoutePiece> pieces = piece_a_rank(6);
  for (const Route route : kRoutes) {
    std::mutex mutex;
    RouteTraffic sent;
    run_ranks(6, [&](Communicator& group) {
      RouteTraffic mine = gather(group, route, topology, pieces);
      mine.add(sum(group, route, topology, pieces));
      const std::lock_guard lock(mutex);
      sent.add(mine);
    });
    const PlanTraffic g = traffic_of(plan_gather(route, topology, pieces), topology);
    const PlanTraffic s = traffic_of(plan_sum(route, topology, pieces), topology);
    EXPECT_EQ(sent.local.messages, g.local.messages + s.local.messages);
    EXPECT_EQ(sent.local.bytes, g.local.bytes + s.local.bytes);
    EXPECT_EQ(sent.across.messages, g.across.messages + s.across.messages);
    EXPECT_EQ(sent.across.bytes, g.across.bytes + s.across.bytes);
    EXPECT_EQ(sent.largest_message, std::max(g.largest_message, s.largest_message));
  }
}

std::string survivors_error(Communicator& group, Route route, const Topology& topology) {
  const auto pieces = piece_a_rank(group.size());
  try {
    for (;;) {  // a rank that only gives may be through before another is gone: the next round tells it
      gather(group, route, topology, pieces);
      sum(group, route, topology, pieces);
    }
  } catch (const CommunicationError& error) {
    return error.what();
  }
}

// Within the timeout every other rank's error names the operation and a rank, and all processes end.
void expect_an_end(Route route, const std::function<void()>& fate, int status_of_lost) {
  const Topology topology = even_topology(4, 2);
  const auto start = std::chrono::steady_clock::now();
  const auto statuses = run_processes(4, 400ms, [&](int rank, Communicator& group) {
    gather(group, route, topology, piece_a_rank(4));
    if (rank == 2) fate();
    const std::string error = survivors_error(group, route, topology);
    EXPECT_TRUE(error.find("gather") != std::string::npos || error.find("sum") != std::string::npos) << error;
    EXPECT_NE(error.find("rank "), std::string::npos) << error;
  });
  EXPECT_EQ(statuses, (std::vector<int>{0, 0, status_of_lost, 0}));
  EXPECT_LT(std::chrono::steady_clock::now() - start, 10s);
}

class LostRank : public testing::TestWithParam<Route> {};

TEST_P(LostRank, KilledEndsEveryonesCollective) {
  expect_an_end(
      GetParam(), [] { raise(SIGKILL); }, 128 + SIGKILL);
}

TEST_P(LostRank, HangingEndsEveryonesCollective) {
  expect_an_end(
      GetParam(),
      [] {
        std::this_thread::sleep_for(900ms);
        _exit(0);
      },
      0);
}

INSTANTIATE_TEST_SUITE_P(Routes, LostRank, testing::Values(Route::kRing, Route::kHierarchical, Route::kTree),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace tandem
