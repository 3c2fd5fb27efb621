#include "observe/plot.h"

#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

namespace tandem {
namespace {

TEST(Plot, ARamp) {
  EXPECT_EQ(plot_series(std::vector<double>{0, 1, 2, 3}, {30, 4}),
            "         3 |   *\n"
            "           |  *\n"
            "           | *\n"
            "         0 |*\n");
}

TEST(Plot, GapsAndNegatives) {
  EXPECT_EQ(plot_series(std::vector<double>{-1, std::nan(""), 1e-3}, {30, 2}),
            "     0.001 |  *\n"
            "        -1 |*\n");
}

TEST(Plot, AFlatCurve) {
  EXPECT_EQ(plot_series(std::vector<double>{0.5, 0.5}, {30, 2}),
            "           |\n"
            "       0.5 |**\n");
}

TEST(Plot, LongSeriesAreAveragedIntoColumns) {
  std::vector<double> values;  // 8 columns in a width of 20: pairs average to 0, 1, ... 7
  for (int i = 0; i < 8; ++i) values.insert(values.end(), {i - 0.5, i + 0.5});
  EXPECT_EQ(plot_series(values, {20, 2}),
            "         7 |    ****\n"
            "         0 |****\n");
}

TEST(Plot, StaysWithinItsWidth) {
  std::vector<double> values;
  for (int i = 0; i < 1000; ++i) values.push_back(std::sin(i / 50.0) * 12345678.9);
  std::istringstream lines(plot_series(values));
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) EXPECT_LE(line.size(), 60u) << line;
  EXPECT_EQ(count, 8);
}

TEST(Plot, NothingToDraw) {
  EXPECT_EQ(plot_series({}), "");
  EXPECT_EQ(plot_series(std::vector<double>{std::nan(""), INFINITY}), "");
}

TEST(Table, AlignsByDisplayWidth) {
  const std::vector<std::pair<std::string, std::string>> rows{{"steps", "10"}, {"\u4e2d\u6587\u4e2d", "x"}, {"a", ""}};
  EXPECT_EQ(two_column_table(rows), "steps   10\n\u4e2d\u6587\u4e2d  x\na\n");
  EXPECT_EQ(two_column_table({}), "");
}

}  // namespace
}  // namespace tandem
