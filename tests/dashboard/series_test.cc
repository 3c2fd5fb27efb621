#include "dashboard/series.h"

#include <gtest/gtest.h>

#include <cmath>

namespace tandem {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

void expect_values(std::span<const double> found, const std::vector<double>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    if (std::isnan(expected[i])) {
      EXPECT_TRUE(std::isnan(found[i])) << i;
    } else {
      EXPECT_DOUBLE_EQ(found[i], expected[i]) << i;
    }
  }
}

TEST(RunSeries, RowsMayDifferInWhatTheyHold) {
  RunSeries series;
  EXPECT_TRUE(series.append(R"({"step":1,"a":1,"timing_s/step":2.5})"));
  EXPECT_TRUE(series.append(R"({"step":2,"val":7,"a":2,"timing_s/step":1.5})"));
  EXPECT_TRUE(series.append(R"({"step":3,"a":"NaN"})"));
  expect_values(series.steps(), {1, 2, 3});
  expect_values(series.seconds(), {2.5, 4, 4});
  expect_values(series.column("a"), {1, 2, kNone});
  expect_values(series.column("val"), {kNone, 7});
  expect_values(series.column("absent"), {});
  EXPECT_EQ(series.last("val"), 7);
  EXPECT_FALSE(series.last("absent"));
  EXPECT_EQ(series.names(), (std::vector<std::string>{"a", "timing_s/step", "val"}));
}

TEST(RunSeries, ABrokenLineAddsNothing) {
  RunSeries series;
  EXPECT_FALSE(series.append(R"({"step":1,"a":1)"));
  EXPECT_FALSE(series.append(R"({"a":1})"));
  EXPECT_FALSE(series.append("step"));
  EXPECT_EQ(series.rows(), 0u);
  EXPECT_TRUE(series.append(R"({"step":1,"a":5,"a":6})"));
  expect_values(series.column("a"), {6});
}

TEST(Grid, HasPiecesOfRoundWidth) {
  const Grid steps = choose_grid(1, 10000, 400, true);
  EXPECT_EQ(steps.width, 50);  // 9999 / 400 is 25
  EXPECT_EQ(steps.begin, 0);
  EXPECT_EQ(steps.count, 201u);
  const Grid few = choose_grid(3, 12, 400, true);
  EXPECT_EQ(few.width, 1);
  EXPECT_EQ(few.begin, 3);
  EXPECT_EQ(few.count, 10u);
  const Grid times = choose_grid(0, 1, 10, false);
  EXPECT_NEAR(times.width, 0.2, 1e-12);  // of width 0.1 there would be eleven
  EXPECT_EQ(choose_grid(5, 5, 100, true).count, 1u);
  // A run that grows keeps its pieces until they are too many.
  EXPECT_EQ(choose_grid(1, 10500, 400, true).width, 50);
  for (const double high : {1.0, 7.0, 99.0, 100.0, 12345.0, 1e7})
    for (const size_t pieces : {2u, 10u, 400u}) {
      const Grid grid = choose_grid(0.3, high, pieces, false);
      EXPECT_LE(grid.count, pieces) << high << " " << pieces;
      EXPECT_GE(grid.begin + static_cast<double>(grid.count) * grid.width, high);
      EXPECT_LE(grid.begin, 0.3);
    }
}

TEST(Pieces, HoldLeastGreatestAndSmoothed) {
  const std::vector<double> x = {1, 2, 3, 4, 5}, values = {10, 30, kNone, INFINITY, 20};
  const Pieces pieces = cut_to_pieces(x, values, {0, 2, 4}, 0.5);
  expect_values(pieces.low, {10, 30, 20, kNone});
  expect_values(pieces.high, {10, 30, 20, kNone});
  // Weights 1/2^k of those seen, newest first, over their sum: (30 + 10/2) / 1.5, (20 + 30/2 + 10/4) / 1.75.
  expect_values(pieces.smooth, {10, 35 / 1.5, 37.5 / 1.75, kNone});
  const Pieces one = cut_to_pieces(x, values, {0, 10, 1}, 0);
  expect_values(one.low, {10});
  expect_values(one.high, {30});
  expect_values(one.smooth, {20});
}

TEST(Pieces, SmoothingRemembersWhatIsBeforeTheGrid) {
  const std::vector<double> x = {1, 2}, values = {10, 30};
  const Pieces pieces = cut_to_pieces(x, values, {2, 1, 1}, 0.5);
  expect_values(pieces.smooth, {35 / 1.5});
  EXPECT_FALSE(pieces.empty);
  EXPECT_TRUE(cut_to_pieces(x, values, {7, 1, 2}, 0).empty);
}

}  // namespace
}  // namespace tandem
