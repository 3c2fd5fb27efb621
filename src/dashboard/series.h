// A run's metrics as columns, and what a chart shows of them.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tandem {

// Rows in the order of metrics.jsonl. Not thread-safe.
class RunSeries {
 public:
  bool append(std::string_view line);  // a line of metrics.jsonl; false: it is none, and nothing was added
  void clear();

  size_t rows() const { return steps_.size(); }
  std::span<const double> steps() const { return steps_; }
  std::span<const double> seconds() const { return seconds_; }  // of training up to the end of each row's step
  const std::vector<std::string>& names() const { return names_; }
  // One value a row, NaN where the row has none; rows beyond its end have none either. Empty: there is no such metric.
  // It holds until the next append() or clear().
  std::span<const double> column(std::string_view name) const;
  std::optional<double> last(std::string_view name) const;  // the newest row that has it

 private:
  size_t column_of(std::string_view name);

  std::vector<double> steps_, seconds_;
  std::vector<std::string> names_;
  std::map<std::string, size_t, std::less<>> places_;
  std::vector<std::vector<double>> columns_;  // shorter than steps_ where the last rows lack the metric
  std::vector<size_t> row_columns_;           // of the row before, in its order: rows mostly repeat it
  std::vector<std::pair<size_t, double>> row_;
};

// Equal pieces of the x axis: piece i is [begin + i * width, begin + (i + 1) * width). One grid serves all runs of a
// chart, so that their points lie above each other.
struct Grid {
  double begin = 0, width = 1;
  size_t count = 0;
};

// At most `pieces` (2 or more) of a width 1, 2 or 5 times a power of ten, so that a growing run keeps its pieces.
// `whole`: x is a number of steps, and no piece is narrower than one.
Grid choose_grid(double low, double high, size_t pieces, bool whole);

// What a piece holds: least and greatest value, and the smoothed value at its last row. NaN where it holds nothing.
struct Pieces {
  std::vector<double> low, high, smooth;
  bool empty = true;
};

// `smoothing` in [0, 1): the weight of the past in the moving average, which starts unbiased (as TensorBoard's). It
// runs over all values, those before the grid included. Values that are not finite are left out.
Pieces cut_to_pieces(std::span<const double> x, std::span<const double> values, const Grid& grid, double smoothing);

}  // namespace tandem
