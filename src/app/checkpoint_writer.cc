#include "app/checkpoint_writer.h"

#include <chrono>

namespace tandem {

SaveReport CheckpointWriter::write(int64_t step, const Fill& fill, const Fill& upload) {
  SaveReport report;
  report.step = step;
  const auto begin = std::chrono::steady_clock::now();
  const uint64_t bytes = pace_.bytes();
  try {
    report.folder = checkpoints_.save(step, [&](const std::filesystem::path& folder) { fill(folder, &pace_); }).folder;
  } catch (const std::exception& error) {  // whatever it is must not end the run
    report.error = error.what();
  }
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  report.gigabytes = static_cast<double>(pace_.bytes() - bytes) / 1e9;
  try {
    if (upload && report.error.empty()) upload(report.folder, &pace_);
  } catch (const std::exception& error) {
    report.upload_error = error.what();
  }
  return report;
}

void CheckpointWriter::start(int64_t step, Fill fill, Fill upload) {
  wait();
  under_way_ = std::async(std::launch::async, [this, step, fill = std::move(fill), upload = std::move(upload)] {
    return write(step, fill, upload);
  });
}

void CheckpointWriter::wait() {
  if (under_way_.valid()) ended_.push_back(under_way_.get());
}

std::optional<SaveReport> CheckpointWriter::take_report() {
  if (under_way_.valid() && under_way_.wait_for(std::chrono::seconds(0)) == std::future_status::ready) wait();
  if (ended_.empty()) return std::nullopt;
  SaveReport report = std::move(ended_.front());
  ended_.pop_front();
  return report;
}

Metrics metrics_of(const SaveReport& report) {
  Metrics metrics;
  metrics.set("timing_s/checkpoint_write", report.seconds);
  metrics.set("perf/checkpoint_gb", report.gigabytes);
  metrics.set("perf/checkpoint_gb_per_s", report.seconds > 0 ? report.gigabytes / report.seconds : 0);
  return metrics;
}

}  // namespace tandem
