#include "observe/metrics.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "observe/json_text.h"

namespace tandem {
namespace {

void append_fields(std::string& out, const Metrics& metrics) {
  for (const Metric& metric : metrics) {
    if (out.back() != '{') out += ',';
    append_json_string(out, metric.name);
    out += ':';
    append_json_number(out, metric.value);
  }
}

}  // namespace

void Metrics::set(std::string_view name, double value) {
  const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const Metric& m) { return m.name == name; });
  if (found != entries_.end()) {
    found->value = value;
  } else {
    entries_.push_back({std::string(name), value});
  }
}

void Metrics::merge(const Metrics& other) {
  if (&other == this) return;
  for (const Metric& metric : other) set(metric.name, metric.value);
}

std::optional<double> Metrics::get(std::string_view name) const {
  const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const Metric& m) { return m.name == name; });
  if (found == entries_.end()) return std::nullopt;
  return found->value;
}

std::optional<Summary> summarize(std::span<const double> values) {
  if (values.empty()) return std::nullopt;
  double sum = 0;
  Summary summary{0, values[0], values[0]};
  for (const double value : values) {
    sum += value;
    // Written so that a NaN stays: no comparison with one is true.
    if (std::isnan(value) || value > summary.max) summary.max = value;
    if (std::isnan(value) || value < summary.min) summary.min = value;
  }
  summary.mean = sum / static_cast<double>(values.size());
  return summary;
}

void add_summary(Metrics& metrics, std::string_view prefix, std::span<const double> values) {
  const auto summary = summarize(values);
  if (!summary) return;
  const std::string start = std::string(prefix) + '/';
  metrics.set(start + "mean", summary->mean);
  metrics.set(start + "max", summary->max);
  metrics.set(start + "min", summary->min);
}

std::string to_json(const Metrics& metrics) {
  std::string out = "{";
  append_fields(out, metrics);
  return out += '}';
}

std::string to_json(int64_t step, const Metrics& metrics) {
  check(!metrics.get("step").has_value(), "no metric is called step");
  std::string out = "{\"step\":" + std::to_string(step);
  append_fields(out, metrics);
  return out += '}';
}

}  // namespace tandem
