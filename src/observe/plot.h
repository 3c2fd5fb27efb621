// Small drawings in plain ASCII for the end of a run.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tandem {

struct PlotSize {
  int width = 60;  // of the whole drawing in columns, labels included; at least 20
  int height = 8;  // rows of the curve; at least 2
};

// A curve over the indices of `values`, with the greatest and least value at the left, rows ending in '\n'. Longer
// series are averaged into columns; values that are not finite leave gaps. "" when none is finite.
std::string plot_series(std::span<const double> values, PlotSize size = {});

// Two aligned columns, one row a line; the left may be UTF-8 of any width. "" when there are no rows.
std::string two_column_table(std::span<const std::pair<std::string, std::string>> rows);

}  // namespace tandem
