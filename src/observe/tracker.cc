#include "observe/tracker.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>

#include "base/error.h"
#include "base/log.h"
#include "observe/event_file.h"
#include "observe/jsonl.h"

namespace tandem {
namespace {

constexpr std::array<std::string_view, 3> kBuiltIn = {"console", "file", "tensorboard"};
constexpr size_t kMostWaiting = 10'000;  // steps
constexpr std::array<std::string_view, 7> kServices = {"wandb",   "mlflow",  "swanlab", "vemlp_wandb",
                                                       "clearml", "trackio", "tracking"};

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
    throw ConfigError("trainer.logger: there is no logger '" + name + "'; known are " + joined(kBuiltIn) +
                      " (and, with a warning only, " + joined(kServices) + ")");
  }
}

bool warn_of_services(std::span<const std::string> names, const std::filesystem::path& metrics_path) {
  std::vector<std::string_view> absent;
  for (const std::string_view service : kServices)
    if (contains(names, service)) absent.push_back(service);
  if (absent.empty()) return false;
  log_warn("trainer.logger: " + joined(absent) + " not available in this build; " + metrics_path.string() +
           " has everything");
  return true;
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

Tracker make_tracker(std::span<const std::string> names, const std::filesystem::path& run_folder,
                     std::string_view project, std::string_view experiment, std::optional<int64_t> resume_step) {
  check_names(names);
  const auto metrics_path = run_folder / "metrics.jsonl";
  const bool replaces_service = warn_of_services(names, metrics_path);
  std::vector<std::unique_ptr<MetricSink>> sinks;
  // The terminal comes last: what it shows is already on disk.
  if (replaces_service || contains(names, "file")) {
    if (resume_step) truncate_jsonl_after(metrics_path, *resume_step);
    sinks.push_back(std::make_unique<FileSink>(metrics_path));
  }
  if (contains(names, "tensorboard"))
    sinks.push_back(
        std::make_unique<TensorboardSink>(tensorboard_folder(run_folder, project, experiment), resume_step));
  if (contains(names, "console")) sinks.push_back(std::make_unique<ConsoleSink>());
  return Tracker(std::move(sinks));
}

}  // namespace tandem
