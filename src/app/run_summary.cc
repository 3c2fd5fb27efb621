#include "app/run_summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "observe/plot.h"

namespace tandem {
namespace {

constexpr size_t kEnds = 3;  // steps averaged at either end

double mean(std::span<const double> values) {
  return values.empty() ? 0 : std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

// The val-core metric, of which there is one a data source.
std::vector<Metric> core(const Metrics& metrics) {
  std::vector<Metric> found;
  for (const Metric& metric : metrics)
    if (metric.name.starts_with("val-core/") && metric.name.find("/mean@") != std::string::npos)
      found.push_back(metric);
  return found;
}

}  // namespace

std::string describe_run(const RunSummary& run) {
  std::vector<std::pair<std::string, std::string>> rows;
  const std::span<const double> rewards(run.rewards);
  if (!rewards.empty()) {
    const size_t ends = std::min(kEnds, rewards.size());
    rows.emplace_back(fmt::format("reward, first {} -> last {} steps", ends, ends),
                      fmt::format("{:.3f} -> {:.3f}", mean(rewards.first(ends)), mean(rewards.last(ends))));
  }
  if (!run.validations.empty()) {
    for (const Metric& last : core(run.validations.back()))
      rows.emplace_back(last.name, run.validations.size() == 1
                                       ? fmt::format("{:.3f}", last.value)
                                       : fmt::format("{:.3f} -> {:.3f}",
                                                     run.validations.front().get(last.name).value_or(0), last.value));
  }
  for (const Metric& phase : run.seconds_by_phase)
    rows.emplace_back("seconds in " + phase.name, fmt::format("{:.1f}", phase.value));
  rows.emplace_back("steps done", std::to_string(run.last_step));
  rows.emplace_back("run folder", run.folder.string());
  if (!run.last_checkpoint.empty()) rows.emplace_back("last checkpoint", run.last_checkpoint.string());
  std::string text;
  if (rewards.size() > 1) text += "\nreward by step\n" + plot_series(rewards) + "\n";
  return text + two_column_table(rows) +
         (run.interrupted ? "\nstopped by request; the same command goes on from here" : "");
}

}  // namespace tandem
