// The same collectives on threads and on processes, and what happens when a rank dies or hangs.
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "parallel/collectives.h"
#include "parallel/communicator_local.h"
#include "processes.h"

namespace tandem {
namespace {

using namespace std::chrono_literals;

// Values whose float sum depends on the order: the expected bits are those of rank order.
float term(int rank, size_t i) {
  constexpr float kTerms[] = {1.0f, 1e8f, -1e8f, 0.5f};
  return kTerms[(static_cast<size_t>(rank) + i) % 4] + static_cast<float>(rank) * 0.125f;
}
float in_rank_order(int size, size_t i) {
  float sum = term(0, i);
  for (int rank = 1; rank < size; ++rank) sum += term(rank, i);
  return sum;
}

// Every collective, checked by the rank itself. Throws at the first wrong value.
void drive(Communicator& group) {
  const int size = group.size(), rank = group.rank();
  const auto require = [](bool ok, const char* what) { check(ok, what); };

  barrier(group, "barrier");
  const auto ranks = all_gather_values(group, "gather ranks", rank * 10);
  for (int r = 0; r < size; ++r) require(ranks[r] == r * 10, "all_gather");

  const std::string told = broadcast_text(group, "tell", rank == size - 1 ? "from the last" : "mine", size - 1);
  require(told == "from the last", "broadcast");

  const auto texts = all_gather_text(group, "texts", std::string(static_cast<size_t>(rank) * 3, 'a'));
  for (int r = 0; r < size; ++r) require(texts[r] == std::string(static_cast<size_t>(r) * 3, 'a'), "texts");
  const auto at_root = gather_text(group, "texts to one", std::to_string(rank), 0);
  require(rank == 0 ? at_root.size() == static_cast<size_t>(size) && at_root.back() == std::to_string(size - 1)
                    : at_root.empty(),
          "gather");

  std::vector<std::vector<int>> out(size), in(size);
  std::vector<std::span<const std::byte>> sends;
  std::vector<std::span<std::byte>> receives;
  for (int r = 0; r < size; ++r) {
    in[r].assign(static_cast<size_t>(rank + r), rank * 100 + r);
    out[r].assign(static_cast<size_t>(rank + r), -1);
    sends.push_back(bytes_of(static_cast<const int*>(in[r].data()), in[r].size()));
    receives.push_back(bytes_of(out[r].data(), out[r].size()));
  }
  all_to_all(group, "all_to_all", sends, receives);
  for (int r = 0; r < size; ++r)
    for (const int value : out[r]) require(value == r * 100 + rank, "all_to_all");

  std::vector<float> values(37);
  for (size_t i = 0; i < values.size(); ++i) values[i] = term(rank, i);
  all_reduce(group, "sum", std::span(values));
  for (size_t i = 0; i < values.size(); ++i) {
    const float expected = in_rank_order(size, i);
    require(std::memcmp(&values[i], &expected, sizeof expected) == 0, "all_reduce is not in rank order");
  }
  double number = 0.1 * rank;
  all_reduce(group, "sum of doubles", std::span(&number, 1));
  double expected = 0;
  for (int r = 1; r < size; ++r) expected += 0.1 * r;
  require(number == expected, "all_reduce of doubles");

  // Halves of the group talk at once, each among itself, while the whole group talks in another thread.
  const auto whole = group.duplicate();
  std::vector<int> half;
  for (int r = rank < size / 2 ? 0 : size / 2; r < (rank < size / 2 ? size / 2 : size); ++r) half.push_back(r);
  const auto part = group.split(half);
  bool same = false;
  std::thread beside([&] { same = all_gather_values(*whole, "beside", rank).back() == size - 1; });
  const auto members = all_gather_values(*part, "half", rank);
  beside.join();
  require(same, "a duplicate carries its own messages");
  require(members == half, "split");
}

TEST(LocalCommunicator, EveryCollective) {
  for (const int size : {1, 2, 3, 4, 8}) run_ranks(size, drive, 20s);
}

TEST(GlooCommunicator, EveryCollective) {
  EXPECT_EQ(run_processes(3, 20s, [](int, Communicator& group) { drive(group); }), (std::vector<int>{0, 0, 0}));
}

TEST(Communicator, CountsCallsAndBytes) {
  run_ranks(4, [](Communicator& group) {
    std::vector<float> own(8), all(32);
    std::vector<std::span<std::byte>> parts;
    for (size_t r = 0; r < 4; ++r) parts.push_back(bytes_of(all.data() + 8 * r, 8));
    all_gather(group, "count", parts);
    EXPECT_EQ(group.traffic().calls, 1);
    EXPECT_EQ(group.traffic().bytes_sent, 3 * 32);
    EXPECT_EQ(group.traffic().bytes_received, 3 * 32);
  });
}

TEST(Communicator, AloneItMovesAndCountsNothing) {
  run_ranks(1, [](Communicator& group) {
    drive(group);
    EXPECT_EQ(group.traffic().calls, 0);
    EXPECT_EQ(group.traffic().bytes_sent, 0);
  });
}

std::string error_of(const std::function<void()>& fn) {
  try {
    fn();
  } catch (const CommunicationError& error) {
    return error.what();
  }
  return "";
}

TEST(LocalCommunicator, AHangingRankEndsEveryonesCollective) {
  std::atomic<int> named = 0;
  run_ranks(
      3,
      [&](Communicator& group) {
        if (group.rank() == 2) {
          std::this_thread::sleep_for(400ms);
          return;
        }
        const std::string error = error_of([&] { barrier(group, "step 7"); });
        EXPECT_NE(error.find("step 7"), std::string::npos) << error;
        if (error.find("rank 2") != std::string::npos) ++named;
      },
      100ms);
  EXPECT_EQ(named, 2);
}

TEST(LocalCommunicator, AFailingRankEndsTheOthersAtOnce) {
  const auto start = std::chrono::steady_clock::now();
  std::string other;
  try {
    run_ranks(2, [&](Communicator& group) {
      if (group.rank() == 1) throw DataError("the dog ate it");
      other = error_of([&] { barrier(group, "reading"); });
    });
    ADD_FAILURE() << "nothing thrown";
  } catch (const DataError& error) {
    EXPECT_STREQ(error.what(), "the dog ate it");
  }
  EXPECT_NE(other.find("the dog ate it"), std::string::npos) << other;
  EXPECT_LT(std::chrono::steady_clock::now() - start, 5s);
}

TEST(LocalCommunicator, RefusesPartsOfUnequalLength) {
  EXPECT_THROW(run_ranks(2,
                         [](Communicator& group) {
                           std::vector<std::byte> bytes(group.rank() == 0 ? 8 : 4);
                           broadcast(group, "lengths", bytes, 0);
                         }),
               CommunicationError);
}

// The survivors' error names the operation, and comes well within the time a test may take.
void survivors_notice(const std::function<void()>& fate) {
  const auto start = std::chrono::steady_clock::now();
  const auto statuses = run_processes(3, 1s, [&](int rank, Communicator& group) {
    barrier(group, "start");
    if (rank == 1) fate();
    const std::string error = error_of([&] { barrier(group, "step 7"); });
    EXPECT_NE(error.find("step 7"), std::string::npos) << error;
    EXPECT_NE(error.find("rank "), std::string::npos) << error;
  });
  EXPECT_EQ(statuses[0], 0);
  EXPECT_EQ(statuses[2], 0);
  EXPECT_LT(std::chrono::steady_clock::now() - start, 12s);
}

TEST(GlooCommunicator, AKilledRankEndsEveryonesCollective) {
  survivors_notice([] { raise(SIGKILL); });
}

TEST(GlooCommunicator, AHangingRankEndsEveryonesCollective) {
  survivors_notice([] {
    std::this_thread::sleep_for(2s);
    _exit(0);
  });
}

}  // namespace
}  // namespace tandem
