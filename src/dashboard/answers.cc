#include "dashboard/answers.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "observe/json_text.h"

namespace tandem {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

void append_number(std::string& out, double value) {
  if (std::isfinite(value)) {
    append_json_number(out, value);
  } else {
    out += "null";
  }
}

// A chart has a few hundred pixels: a float's digits are enough, and half the bytes.
void append_values(std::string& out, std::span<const double> values) {
  out += '[';
  for (size_t i = 0; i < values.size(); ++i) {
    if (i > 0) out += ',';
    if (std::isfinite(values[i])) {
      append_json_number(out, static_cast<float>(values[i]));
    } else {
      out += "null";
    }
  }
  out += ']';
}

void append_steps(std::string& out, std::span<const double> steps) {
  out += '[';
  for (size_t i = 0; i < steps.size(); ++i) {
    if (i > 0) out += ',';
    append_number(out, steps[i]);
  }
  out += ']';
}

void append_strings(std::string& out, const std::vector<std::string>& words) {
  out += '[';
  bool first = true;
  for (const std::string& word : words) {
    if (!std::exchange(first, false)) out += ',';
    append_json_string(out, word);
  }
  out += ']';
}

void append_run(std::string& out, const RecordedRun& run) {
  const RunStatus status = run.status();
  out += "{\"id\":";
  append_json_string(out, status.id);
  out += ",\"folder\":";
  append_json_string(out, run.folder().string());
  out += ",\"rows\":" + std::to_string(status.rows) + ",\"first_step\":";
  append_number(out, status.first_step);
  out += ",\"last_step\":";
  append_number(out, status.last_step);
  out += ",\"seconds\":";
  append_number(out, status.seconds);
  out += ",\"updated\":" + std::to_string(status.updated) + ",\"generation\":" + std::to_string(status.generation);
  out += ",\"warnings\":" + std::to_string(status.warnings) + ",\"errors\":" + std::to_string(status.errors);
  out += std::string(",\"state\":\"") + (status.failed ? "failed" : status.finished ? "finished" : "open") + "\"";
  out += ",\"traces\":[";
  for (const int64_t step : run.traces()) {
    if (out.back() != '[') out += ',';
    out += std::to_string(step);
  }
  out += "],\"metrics\":";
  run.with_series([&](const RunSeries& series) { append_strings(out, series.names()); });
  out += '}';
}

std::span<const double> places_of(const RunSeries& series, const SeriesQuery& query) {
  return query.by_time ? series.seconds() : series.steps();
}

using Runs = std::vector<std::shared_ptr<RecordedRun>>;

Runs runs_with(const RunStore& store, const SeriesQuery& query, const std::string& metric) {
  Runs runs;
  for (const std::string& id : query.runs) {
    auto run = store.find(id);
    if (run && run->with_series([&](const RunSeries& series) { return !series.column(metric).empty(); }))
      runs.push_back(std::move(run));
  }
  return runs;
}

Grid grid_of(const Runs& runs, const SeriesQuery& query) {
  double low = kInfinity, high = -kInfinity;
  for (const auto& run : runs) {
    run->with_series([&](const RunSeries& series) {
      const auto x = places_of(series, query);
      const auto [least, most] = std::minmax_element(x.begin(), x.end());
      if (least != x.end()) low = std::min(low, *least), high = std::max(high, *most);
    });
  }
  if (query.begin) low = std::max(low, *query.begin);
  if (query.end) high = std::min(high, *query.end);
  return low <= high ? choose_grid(low, high, query.pieces, !query.by_time) : Grid{0, 1, 0};
}

// Where a piece's point is drawn: at its last step, so that pieces of one step stand on their step.
std::vector<double> places(const Grid& grid, bool by_time) {
  std::vector<double> x(grid.count);
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = grid.begin + static_cast<double>(i) * grid.width + (by_time ? grid.width / 2 : grid.width - 1);
  return x;
}

void append_pieces(std::string& out, const RecordedRun& run, const std::string& metric, const Grid& grid,
                   const SeriesQuery& query) {
  const Pieces pieces = run.with_series([&](const RunSeries& series) {
    return cut_to_pieces(places_of(series, query), series.column(metric), grid, query.smoothing);
  });
  append_json_string(out, run.id());
  out += ":{";
  if (!query.bands || std::ranges::find(*query.bands, run.id()) != query.bands->end()) {
    out += "\"low\":";
    append_values(out, pieces.low);
    out += ",\"high\":";
    append_values(out, pieces.high);
    out += ',';
  }
  out += "\"smooth\":";
  append_values(out, pieces.smooth);
  out += '}';
}

}  // namespace

std::string runs_answer(const RunStore& store) {
  std::string out = "{\"version\":" + std::to_string(store.version()) + ",\"roots\":[";
  for (const auto& root : store.roots()) {
    if (out.back() != '[') out += ',';
    append_json_string(out, root.string());
  }
  out += "],\"runs\":[";
  for (const auto& run : store.runs()) {
    if (out.back() != '[') out += ',';
    append_run(out, *run);
  }
  return out += "]}";
}

std::string series_answer(const RunStore& store, const SeriesQuery& query) {
  std::string out = "{";
  for (const std::string& metric : query.metrics) {
    const Runs runs = runs_with(store, query, metric);
    const Grid grid = grid_of(runs, query);
    if (out.back() != '{') out += ',';
    append_json_string(out, metric);
    out += ":{\"x\":";
    append_steps(out, places(grid, query.by_time));
    out += ",\"width\":";
    append_number(out, grid.width);
    out += ",\"runs\":{";
    for (const auto& run : runs) {
      if (out.back() != '{') out += ',';
      append_pieces(out, *run, metric, grid, query);
    }
    out += "}}";
  }
  return out += '}';
}

std::string rows_answer(const RecordedRun& run, const std::string& prefix, size_t most) {
  return run.with_series([&](const RunSeries& series) {
    std::vector<std::pair<std::string_view, std::span<const double>>> columns;
    for (const std::string& name : series.names())
      if (name.starts_with(prefix)) columns.emplace_back(name, series.column(name));
    const auto value = [](std::span<const double> values, size_t row) {
      return row < values.size() ? values[row] : std::numeric_limits<double>::quiet_NaN();
    };
    std::vector<size_t> rows;
    for (size_t row = series.rows(); row-- > 0 && rows.size() < most;)
      if (std::ranges::any_of(columns, [&](const auto& c) { return !std::isnan(value(c.second, row)); }))
        rows.push_back(row);
    std::reverse(rows.begin(), rows.end());
    const auto pick = [&](std::span<const double> values) {
      std::vector<double> picked;
      for (const size_t row : rows) picked.push_back(value(values, row));
      return picked;
    };
    std::string out = "{\"steps\":";
    append_steps(out, pick(series.steps()));
    out += ",\"columns\":{";
    for (const auto& [name, values] : columns) {
      if (out.back() != '{') out += ',';
      append_json_string(out, name);
      out += ':';
      append_steps(out, pick(values));
    }
    return out += "}}";
  });
}

std::string config_answer(const RecordedRun& run) {
  std::string out = "[";
  for (const auto& [key, value] : run.config()) {
    out += out.size() > 1 ? ",[" : "[";
    append_json_string(out, key);
    out += ',';
    append_json_string(out, value);
    out += ']';
  }
  return out += ']';
}

std::string log_answer(const RecordedRun& run) {
  std::string out = "[";
  for (const std::string& line : run.log_lines()) {
    if (!line.starts_with('{') || !line.ends_with('}')) continue;
    if (out.size() > 1) out += ',';
    out += line;
  }
  return out += ']';
}

}  // namespace tandem
