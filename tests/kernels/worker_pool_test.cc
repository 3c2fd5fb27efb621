// The threads that share a kernel's pieces: each piece once, whoever takes it; failures, nesting and callers at once.
#include <gtest/gtest.h>
#include <omp.h>

#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

#include "kernels/parallel_for.h"

namespace tandem::kernels {
namespace {

class WorkerPool : public testing::Test {
 protected:
  void SetUp() override { omp_set_num_threads(3); }
  void TearDown() override { omp_set_num_threads(kept_); }

  // How often each of n indices was visited by so many calls.
  static std::vector<int> visits(int64_t n, int calls) {
    std::vector<std::atomic<int>> counts(static_cast<size_t>(n));
    for (int call = 0; call < calls; ++call)
      parallel_for(n, 1, [&](int64_t first, int64_t last) {
        for (int64_t i = first; i < last; ++i) ++counts[static_cast<size_t>(i)];
      });
    return {counts.begin(), counts.end()};
  }

 private:
  const int kept_ = omp_get_max_threads();
};

TEST_F(WorkerPool, VisitsEveryIndexOnce) {
  for (const int64_t n : {1, 2, 11, 12, 13, 1000}) EXPECT_EQ(visits(n, 1), std::vector<int>(n, 1)) << n;
}

TEST_F(WorkerPool, CallsFollowEachOtherWithoutLosingOne) { EXPECT_EQ(visits(7, 20000), std::vector<int>(7, 20000)); }

TEST_F(WorkerPool, ServesCallersAtOnce) {
  std::vector<std::vector<int>> seen(4);
  std::vector<std::thread> callers;
  for (auto& mine : seen)
    callers.emplace_back([&mine] {
      omp_set_num_threads(3);
      mine = visits(9, 3000);
    });
  for (std::thread& caller : callers) caller.join();
  for (const auto& mine : seen) EXPECT_EQ(mine, std::vector<int>(9, 3000));
}

TEST_F(WorkerPool, RunsWithinItself) {
  std::atomic<int> inner{0};
  parallel_for(6, 1, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i)
      parallel_for(5, 1, [&](int64_t a, int64_t b) { inner += static_cast<int>(b - a); });
  });
  EXPECT_EQ(inner, 30);
}

TEST_F(WorkerPool, HandsOnWhatAPieceThrows) {
  for (int i = 0; i < 50; ++i)
    EXPECT_THROW(parallel_for(12, 1,
                              [](int64_t first, int64_t last) {
                                if (first <= 5 && 5 < last) throw std::runtime_error("the fifth");
                              }),
                 std::runtime_error);
  EXPECT_EQ(visits(12, 1), std::vector<int>(12, 1));
}

}  // namespace
}  // namespace tandem::kernels
