#include "observe/tracker.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <span>

#include "base/error.h"
#include "base/log.h"
#include "observe/bridge.h"
#include "observe/event_file.h"
#include "observe/jsonl.h"

namespace tandem {
namespace {

constexpr std::array<std::string_view, 3> kBuiltIn = {"console", "file", "tensorboard"};
constexpr size_t kMostWaiting = 10'000;  // steps
constexpr std::array<std::string_view, 4> kServices = {"wandb", "mlflow", "swanlab", "trackio"};

class ConsoleSink : public MetricSink {
 public:
  void log(int64_t step, const Metrics& metrics) override { print_line(console_line(step, metrics)); }
};

class FileSink : public MetricSink {
 public:
  explicit FileSink(const std::filesystem::path& path) : file_(path) {}
  void log(int64_t step, const Metrics& metrics) override { file_.append(to_json(step, metrics)); }

 private:
  JsonlWriter file_;
};

class TensorboardSink : public MetricSink {
 public:
  TensorboardSink(const std::filesystem::path& folder, std::optional<int64_t> resume_step) : file_(folder) {
    if (resume_step) file_.start_session(*resume_step + 1);
  }
  void log(int64_t step, const Metrics& metrics) override { file_.add_scalars(step, metrics); }

 private:
  EventFile file_;
};

template <class Names>
bool contains(const Names& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::string joined(std::span<const std::string_view> names) {
  std::string out;
  for (const auto name : names) out.append(out.empty() ? "" : ", ").append(name);
  return out;
}

// A name may hold anything; as part of a path it is one folder.
std::string as_folder(std::string_view name) {
  std::string out(name);
  std::replace(out.begin(), out.end(), '/', '_');
  return out == "." || out == ".." ? "_" : out;
}

std::filesystem::path tensorboard_folder(const std::filesystem::path& run_folder, std::string_view project,
                                         std::string_view experiment) {
  const char* chosen = std::getenv("TENSORBOARD_DIR");
  if (chosen != nullptr && *chosen != '\0') return chosen;
  return run_folder / "tensorboard" / as_folder(project) / as_folder(experiment);
}

void check_names(std::span<const std::string> names) {
  for (const std::string& name : names) {
    if (contains(kBuiltIn, name) || contains(kServices, name)) continue;
    throw ConfigError("trainer.logger: there is no logger '" + name + "'; known are " + joined(kBuiltIn) + ", " +
                      joined(kServices));
  }
}

BridgeOptions bridge_options(const TrackerOptions& options, std::string_view service) {
  BridgeOptions bridge;
  bridge.service = service;
  bridge.project = options.project;
  bridge.experiment = options.experiment;
  bridge.folder = options.run_folder;
  bridge.config = options.config;
  bridge.resume = options.resume_step.has_value();
  return bridge;
}

}  // namespace

Tracker::Tracker(std::vector<std::unique_ptr<MetricSink>> sinks) {
  for (auto& sink : sinks) outputs_.push_back({std::move(sink), Backlog<Line>(kMostWaiting)});
}

void Tracker::log(int64_t step, const Metrics& metrics) {
  for (Output& output : outputs_)
    output.waiting.write({step, metrics}, [&](const Line& line) { output.sink->log(line.step, line.metrics); });
}

std::string console_line(int64_t step, const Metrics& metrics) {
  std::string line = fmt::format("step:{}", step);
  for (const Metric& metric : metrics) {
    const bool whole = std::abs(metric.value) < 1e15 && metric.value == std::trunc(metric.value);
    line += whole ? fmt::format(" - {}:{}", metric.name, static_cast<int64_t>(metric.value))
                  : fmt::format(" - {}:{:.6g}", metric.name, metric.value);
  }
  return line;
}

Tracker make_tracker(const TrackerOptions& options) {
  check_names(options.names);
  const auto metrics_path = options.run_folder / "metrics.jsonl";
  const auto wants = [&](std::string_view name) { return contains(options.names, name); };
  std::vector<std::unique_ptr<MetricSink>> sinks;
  // The terminal comes last: what it shows is already on disk.
  if (wants("file") || std::ranges::any_of(kServices, wants)) {
    if (options.resume_step) truncate_jsonl_after(metrics_path, *options.resume_step);
    sinks.push_back(std::make_unique<FileSink>(metrics_path));
  }
  if (wants("tensorboard"))
    sinks.push_back(std::make_unique<TensorboardSink>(
        tensorboard_folder(options.run_folder, options.project, options.experiment), options.resume_step));
  for (const std::string_view service : kServices)
    if (wants(service)) sinks.push_back(std::make_unique<BridgeSink>(bridge_options(options, service)));
  if (wants("console")) sinks.push_back(std::make_unique<ConsoleSink>());
  return Tracker(std::move(sinks));
}

}  // namespace tandem
