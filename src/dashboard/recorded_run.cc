#include "dashboard/recorded_run.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "base/file.h"
#include "config/flat_yaml.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

constexpr size_t kLogLines = 500;
constexpr std::string_view kTracePrefix = "trace_step_", kTraceEnd = ".json";

int64_t written_at(const fs::path& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 ? static_cast<int64_t>(info.st_mtime) : 0;
}

bool says(std::string_view line, std::string_view key, std::string_view word) {
  return line.find(fmt::format("\"{}\":\"{}\"", key, word)) != line.npos;
}

}  // namespace

RecordedRun::RecordedRun(std::string id, fs::path folder)
    : id_(std::move(id)),
      folder_(std::move(folder)),
      metrics_tail_(folder_ / "metrics.jsonl"),
      log_tail_(folder_ / "log.jsonl"),
      samples_(folder_ / "samples.jsonl") {
  status_.id = id_;
}

void RecordedRun::add_log_line(std::string_view line) {
  status_.errors += says(line, "level", "error");
  status_.warnings += says(line, "level", "warning");
  if (says(line, "event", "start")) status_.finished = status_.failed = false;
  if (says(line, "event", "end")) status_.finished = true;
  if (says(line, "event", "failure")) status_.failed = true;
  log_.emplace_back(line);
  if (log_.size() > kLogLines) log_.pop_front();
}

RecordedRun::News RecordedRun::poll(size_t max_bytes) {
  const std::lock_guard lock(mutex_);
  bool changed = false;
  bool more =
      metrics_tail_.read(max_bytes, {[&] {
                                       series_.clear();
                                       ++status_.generation;
                                       changed = true;
                                     },
                                     [&](std::string_view line, uint64_t) { changed |= series_.append(line); }});
  more |= log_tail_.read(max_bytes, {[&] {
                                       log_.clear();
                                       status_.errors = status_.warnings = 0;
                                     },
                                     [&](std::string_view line, uint64_t) {
                                       add_log_line(line);
                                       changed = true;
                                     }});
  if (changed || status_.updated == 0) status_.updated = written_at(folder_ / "metrics.jsonl");
  return {changed, more};
}

RunStatus RecordedRun::status() const {
  const std::lock_guard lock(mutex_);
  RunStatus status = status_;
  status.rows = series_.rows();
  if (series_.rows() > 0) {
    status.first_step = series_.steps().front();
    status.last_step = series_.steps().back();
    status.seconds = series_.seconds().back();
  }
  return status;
}

std::vector<int64_t> RecordedRun::traces() const {
  std::vector<int64_t> steps;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder_, ignored)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kTracePrefix) || !name.ends_with(kTraceEnd)) continue;
    int64_t step = 0;
    const char *begin = name.data() + kTracePrefix.size(), *end = name.data() + name.size() - kTraceEnd.size();
    if (const auto read = std::from_chars(begin, end, step); read.ec == std::errc() && read.ptr == end)
      steps.push_back(step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

std::deque<std::string> RecordedRun::log_lines() const {
  const std::lock_guard lock(mutex_);
  return log_;
}

std::vector<std::pair<std::string, std::string>> RecordedRun::config() const {
  try {
    return flat_yaml(read_file(folder_ / "config.yaml"), (folder_ / "config.yaml").string());
  } catch (const Error&) {  // absent, or being written: there is nothing to show
    return {};
  }
}

}  // namespace tandem
