// On the CPU: what ranks add up and wait for.
#include "kernels/side_work.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

namespace tandem::kernels {
namespace {

TEST(SideWork, AddsAndClearsParts) {
  const at::Tensor sums = at::arange(10, at::kFloat);
  accumulate(sums.narrow(0, 2, 3), at::full({3}, 0.5f, at::kFloat));
  set_to_zero(sums.narrow(0, 7, 2));
  const float wanted[] = {0, 1, 2.5f, 3.5f, 4.5f, 5, 6, 0, 0, 9};
  for (int64_t i = 0; i < 10; ++i) EXPECT_EQ(sums.data_ptr<float>()[i], wanted[i]) << i;
  EXPECT_ANY_THROW(accumulate(sums, at::full({3}, 0.5f, at::kFloat)));
}

TEST(SideWork, RunsAtOnceWhereThereIsNoDevice) {
  const at::Tensor like = at::full({1}, 0.0f, at::kFloat);
  EXPECT_EQ(mark(like), nullptr);
  int runs = 0;
  run_beside(like, nullptr, [&] { ++runs; });
  EXPECT_EQ(runs, 1);
  EXPECT_THROW(run_beside(like, nullptr, [] { throw 7; }), int);
}

// Ones: a block's sum is its length.
TEST(SideWork, CountsEveryBlockOfEveryTensor) {
  const at::Tensor all[] = {at::full({2, kSquareBlock}, 1.0f, at::kFloat), at::full({0}, 1.0f, at::kFloat),
                            at::full({kSquareBlock + 3}, 2.0f, at::kFloat)};
  const std::vector<std::vector<double>> wanted{{kSquareBlock, kSquareBlock}, {}, {4.0 * kSquareBlock, 12}};
  EXPECT_EQ(block_squares(all), wanted);
}

}  // namespace
}  // namespace tandem::kernels
