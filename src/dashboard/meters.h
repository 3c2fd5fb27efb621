// The machine's meters, one reading every two seconds for the last ten minutes. Read from /proc and the GPU driver.
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <mutex>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "dashboard/gpu_meters.h"

namespace tandem {

struct Meters {
  int64_t time = 0;  // Unix seconds
  double cpu = 0;    // busy share of all cores, 0 to 1
  double load = 0;   // of one minute
  double memory_used_gb = 0, memory_total_gb = 0;
  double disk_free_gb = 0;  // where the runs are
  std::vector<GpuReading> gpus;
};

struct CpuTicks {
  uint64_t busy = 0, all = 0;
};
CpuTicks parse_cpu_ticks(std::string_view proc_stat);  // its first line

// Thread-safe.
class MeterLog {
 public:
  explicit MeterLog(std::filesystem::path disk);
  std::string as_json() const;  // {"time": [...], "cpu": [...], ..., "gpus": [{"busy": [...], ...}, ...]}

 private:
  void watch(const std::stop_token& stop);

  const std::filesystem::path disk_;
  mutable std::mutex mutex_;
  std::deque<Meters> readings_;
  std::jthread thread_;
};

}  // namespace tandem
