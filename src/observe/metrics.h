// The numbers of a step, by name. Names are verl's wherever verl has one ("actor/pg_loss", "timing_s/gen", ...).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tandem {

struct Metric {
  std::string name;
  double value = 0;
};

// Keeps the order in which names were first set. A plain value: not thread-safe.
class Metrics {
 public:
  void set(std::string_view name, double value);  // a name set again keeps its place
  void merge(const Metrics& other);               // sets every entry of `other`
  std::optional<double> get(std::string_view name) const;

  size_t size() const { return entries_.size(); }
  bool empty() const { return entries_.empty(); }
  std::vector<Metric>::const_iterator begin() const { return entries_.begin(); }
  std::vector<Metric>::const_iterator end() const { return entries_.end(); }

 private:
  std::vector<Metric> entries_;
};

struct Summary {
  double mean = 0, max = 0, min = 0;
};
// Summed in the given order. A NaN among the values makes all three NaN. Nothing when there are no values.
std::optional<Summary> summarize(std::span<const double> values);

// Sets prefix/mean, prefix/max, prefix/min; sets nothing when there are no values.
void add_summary(Metrics& metrics, std::string_view prefix, std::span<const double> values);

// One flat JSON object on one line, without a newline. Numbers are the shortest text that reads back as the same
// double. JSON has no other numbers than finite ones: the rest are the strings "NaN", "Infinity" and "-Infinity".
std::string to_json(const Metrics& metrics);
// The same with "step" as the first key; no metric may be called "step".
std::string to_json(int64_t step, const Metrics& metrics);

}  // namespace tandem
