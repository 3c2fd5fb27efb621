#include "app/checkpoint_writer.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>

#include "observe/host_info.h"

namespace tandem {
namespace {

using namespace std::chrono_literals;

constexpr double kMemoryShare = 0.5;  // most of the free memory that a copy may take

// Looks at what went through a pace, from its making on.
class BusiestSecond {
 public:
  explicit BusiestSecond(const WritePace& pace)
      : watching_(std::async(std::launch::async, [this, &pace] { return watch(pace); })) {}

  double gigabytes() {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    changed_.notify_one();
    return static_cast<double>(watching_.get()) / 1e9;
  }

 private:
  static constexpr auto kPause = 50ms;
  static constexpr size_t kLooks = 1000ms / kPause;  // in a second

  uint64_t watch(const WritePace& pace) {
    std::deque<uint64_t> counts{pace.bytes()};
    uint64_t most = 0;
    std::unique_lock lock(mutex_);
    for (bool last = false; !last;) {
      last = changed_.wait_for(lock, kPause, [this] { return over_; });
      counts.push_back(pace.bytes());
      if (counts.size() > kLooks + 1) counts.pop_front();
      most = std::max(most, counts.back() - counts.front());
    }
    return most;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
  std::future<uint64_t> watching_;
};

}  // namespace

SaveReport CheckpointWriter::write(int64_t step, const Fill& fill, const Fill& upload) {
  SaveReport report;
  report.step = step;
  const auto begin = std::chrono::steady_clock::now();
  const uint64_t bytes = pace_.bytes();
  BusiestSecond busiest(pace_);
  try {
    report.folder = checkpoints_.save(step, [&](const std::filesystem::path& folder) { fill(folder, &pace_); }).folder;
  } catch (const std::exception& error) {  // whatever it is must not end the run
    report.error = error.what();
  }
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  report.gigabytes = static_cast<double>(pace_.bytes() - bytes) / 1e9;
  report.peak_gigabytes = busiest.gigabytes();
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

bool fits_in_memory(uint64_t bytes) {
  const double available = host_memory().available_gb;
  return available <= 0 || static_cast<double>(bytes) / (1 << 30) <= kMemoryShare * available;
}

Metrics metrics_of(const SaveReport& report) {
  Metrics metrics;
  metrics.set("timing_s/checkpoint_write", report.seconds);
  metrics.set("perf/checkpoint_gb", report.gigabytes);
  metrics.set("perf/checkpoint_gb_per_s", report.seconds > 0 ? report.gigabytes / report.seconds : 0);
  metrics.set("perf/checkpoint_peak_gb_per_s", report.peak_gigabytes);
  return metrics;
}

}  // namespace tandem
