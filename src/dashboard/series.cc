#include "dashboard/series.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "dashboard/flat_json.h"

namespace tandem {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

double nice_width(double least) {
  const double power = std::pow(10.0, std::floor(std::log10(least)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (factor * power >= least * (1 - 1e-9)) return factor * power;
  return 10 * power;
}

}  // namespace

size_t RunSeries::column_of(std::string_view name) {
  if (const size_t expected = row_.size(); expected < row_columns_.size() && names_[row_columns_[expected]] == name)
    return row_columns_[expected];
  const auto found = places_.find(name);
  if (found != places_.end()) return found->second;
  places_.emplace(name, names_.size());
  names_.emplace_back(name);
  columns_.emplace_back();
  return names_.size() - 1;
}

bool RunSeries::append(std::string_view line) {
  std::optional<double> step;
  double took = kNone;
  row_.clear();
  const bool whole = parse_flat_json(line, [&](std::string_view key, double value) {
    if (key == "step") {
      step = value;
      return;
    }
    if (key == "timing_s/step") took = value;
    row_.emplace_back(column_of(key), value);
  });
  if (!whole || !step || !std::isfinite(*step)) return false;
  steps_.push_back(*step);
  seconds_.push_back((seconds_.empty() ? 0 : seconds_.back()) + (std::isfinite(took) ? took : 0));
  row_columns_.clear();
  for (const auto& [column, value] : row_) {
    columns_[column].resize(steps_.size() - 1, kNone);
    columns_[column].push_back(value);
    row_columns_.push_back(column);
  }
  return true;
}

void RunSeries::clear() { *this = {}; }

std::span<const double> RunSeries::column(std::string_view name) const {
  const auto found = places_.find(name);
  if (found == places_.end()) return {};
  return columns_[found->second];
}

std::optional<double> RunSeries::last(std::string_view name) const {
  const auto found = places_.find(name);
  if (found == places_.end() || columns_[found->second].empty()) return std::nullopt;
  return columns_[found->second].back();
}

Grid choose_grid(double low, double high, size_t pieces, bool whole) {
  if (!(low <= high) || pieces == 0) return {};
  const double span = high - low;
  double width = span > 0 ? nice_width(span / static_cast<double>(pieces)) : 1;
  if (whole) width = std::max(1.0, width);
  const auto count_of = [&] { return std::floor(high / width) - std::floor(low / width) + 1; };
  while (count_of() > static_cast<double>(pieces) && pieces > 1) width = nice_width(width * 1.01);
  return {std::floor(low / width) * width, width, static_cast<size_t>(count_of())};
}

Pieces cut_to_pieces(std::span<const double> x, std::span<const double> values, const Grid& grid, double smoothing) {
  Pieces out;
  out.low.assign(grid.count, kNone);
  out.high = out.smooth = out.low;
  double mean = 0, weight = 0;
  for (size_t i = 0; i < std::min(x.size(), values.size()); ++i) {
    if (!std::isfinite(values[i])) continue;
    mean = smoothing * mean + (1 - smoothing) * values[i];
    weight = smoothing * weight + (1 - smoothing);
    const double place = std::floor((x[i] - grid.begin) / grid.width);
    if (place < 0 || place >= static_cast<double>(grid.count)) continue;
    const auto piece = static_cast<size_t>(place);
    // Written so that the first value replaces NaN.
    if (!(out.low[piece] <= values[i])) out.low[piece] = values[i];
    if (!(out.high[piece] >= values[i])) out.high[piece] = values[i];
    out.smooth[piece] = mean / weight;
    out.empty = false;
  }
  return out;
}

}  // namespace tandem
