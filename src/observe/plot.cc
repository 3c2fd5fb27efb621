#include "observe/plot.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "observe/utf8.h"

namespace tandem {
namespace {

constexpr double kGap = std::numeric_limits<double>::quiet_NaN();

// One value a column: the series itself, or means of equal shares of it. A column with no finite value is a gap.
std::vector<double> columns_of(std::span<const double> values, size_t columns) {
  columns = std::min(columns, values.size());
  std::vector<double> out;
  for (size_t c = 0; c < columns; ++c) {
    double sum = 0;
    int count = 0;
    for (size_t i = c * values.size() / columns; i < (c + 1) * values.size() / columns; ++i) {
      if (!std::isfinite(values[i])) continue;
      sum += values[i];
      ++count;
    }
    out.push_back(count == 0 ? kGap : sum / count);
  }
  return out;
}

// Row of a value, 0 at the top; a flat curve lies in the bottom row.
int row_of(double value, double low, double high, int height) {
  if (high <= low) return height - 1;
  return static_cast<int>(std::lround((high - value) / (high - low) * (height - 1)));
}

}  // namespace

std::string plot_series(std::span<const double> values, PlotSize size) {
  check(size.width >= 20 && size.height >= 2, "a plot is at least 20 x 2");
  constexpr int kLabel = 10;  // "%10.4g |"
  const auto columns = columns_of(values, static_cast<size_t>(size.width - kLabel - 2));
  double low = std::numeric_limits<double>::infinity(), high = -low;
  for (const double value : columns) {
    if (std::isnan(value)) continue;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  if (low > high) return "";
  std::vector<std::string> rows(static_cast<size_t>(size.height), std::string(columns.size(), ' '));
  for (size_t c = 0; c < columns.size(); ++c)
    if (!std::isnan(columns[c])) rows[static_cast<size_t>(row_of(columns[c], low, high, size.height))][c] = '*';
  std::string out;
  for (size_t r = 0; r < rows.size(); ++r) {
    const bool top = r == 0 && high > low;
    const std::string label =
        top ? fmt::format("{:.4g}", high) : (r + 1 == rows.size() ? fmt::format("{:.4g}", low) : "");
    rows[r].erase(rows[r].find_last_not_of(' ') + 1);
    out += fmt::format("{:>{}} |{}\n", label, kLabel, rows[r]);
  }
  return out;
}

std::string two_column_table(std::span<const std::pair<std::string, std::string>> rows) {
  int left = 0;
  for (const auto& row : rows) left = std::max(left, display_width(row.first));
  std::string out;
  for (const auto& [name, value] : rows) {
    out += name;
    if (!value.empty())
      out.append(static_cast<size_t>(left) + 2 - static_cast<size_t>(display_width(name)), ' ').append(value);
    out += '\n';
  }
  return out;
}

}  // namespace tandem
