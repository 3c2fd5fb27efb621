#include "dashboard/meters.h"

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "observe/host_info.h"
#include "observe/json_text.h"

namespace tandem {
namespace {

constexpr size_t kReadings = 300;
constexpr std::chrono::seconds kInterval{2};
constexpr double kGb = 1024.0 * 1024.0 * 1024.0;

std::string first_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

template <class Get>
void append_list(std::string& out, const char* name, const std::deque<Meters>& readings, const Get& get) {
  out.append(out.size() > 1 ? ",\"" : "\"").append(name).append("\":[");
  for (size_t i = 0; i < readings.size(); ++i) {
    if (i > 0) out += ',';
    append_json_number(out, static_cast<double>(get(readings[i])));
  }
  out += ']';
}

}  // namespace

CpuTicks parse_cpu_ticks(std::string_view proc_stat) {
  std::istringstream line{std::string(proc_stat.substr(0, proc_stat.find('\n')))};
  std::string name;
  line >> name;
  CpuTicks ticks;
  uint64_t value = 0;
  // user nice system idle iowait irq softirq steal; what follows is counted in user already.
  for (int i = 0; i < 8 && line >> value; ++i) {
    ticks.all += value;
    if (i != 3 && i != 4) ticks.busy += value;
  }
  return ticks;
}

MeterLog::MeterLog(std::filesystem::path disk)
    : disk_(std::move(disk)), thread_([this](const std::stop_token& stop) { watch(stop); }) {}

void MeterLog::watch(const std::stop_token& stop) {
  const GpuMeters gpus(load_nvml());
  CpuTicks before = parse_cpu_ticks(first_line("/proc/stat"));
  std::mutex waiting;
  std::condition_variable_any wake;
  while (!stop.stop_requested()) {
    {
      std::unique_lock lock(waiting);
      wake.wait_for(lock, stop, kInterval, [] { return false; });
    }
    const CpuTicks now = parse_cpu_ticks(first_line("/proc/stat"));
    const HostMemory memory = host_memory();
    std::error_code ignored;
    const auto space = std::filesystem::space(disk_, ignored);
    Meters reading;
    reading.time =
        std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
    if (now.all > before.all)
      reading.cpu = static_cast<double>(now.busy - before.busy) / static_cast<double>(now.all - before.all);
    double load[1] = {0};
    if (::getloadavg(load, 1) == 1) reading.load = load[0];
    reading.memory_total_gb = memory.total_gb;
    reading.memory_used_gb = memory.total_gb - memory.available_gb;
    reading.disk_free_gb = ignored ? 0 : static_cast<double>(space.available) / kGb;
    reading.gpus = gpus.read();
    before = now;
    const std::lock_guard lock(mutex_);
    readings_.push_back(reading);
    if (readings_.size() > kReadings) readings_.pop_front();
  }
}

std::string MeterLog::as_json() const {
  const std::lock_guard lock(mutex_);
  std::string out = "{";
  append_list(out, "time", readings_, [](const Meters& m) { return m.time; });
  append_list(out, "cpu", readings_, [](const Meters& m) { return m.cpu; });
  append_list(out, "load", readings_, [](const Meters& m) { return m.load; });
  append_list(out, "memory_used_gb", readings_, [](const Meters& m) { return m.memory_used_gb; });
  append_list(out, "memory_total_gb", readings_, [](const Meters& m) { return m.memory_total_gb; });
  append_list(out, "disk_free_gb", readings_, [](const Meters& m) { return m.disk_free_gb; });
  out += ",\"gpus\":[";
  const size_t num_gpus = readings_.empty() ? 0 : readings_.back().gpus.size();
  for (size_t gpu = 0; gpu < num_gpus; ++gpu) {
    std::string one = "{";
    append_list(one, "busy", readings_, [gpu](const Meters& m) { return m.gpus[gpu].busy; });
    append_list(one, "memory_used_gb", readings_, [gpu](const Meters& m) { return m.gpus[gpu].memory_used_gb; });
    append_list(one, "memory_total_gb", readings_, [gpu](const Meters& m) { return m.gpus[gpu].memory_total_gb; });
    out += (gpu > 0 ? "," : "") + one + "}";
  }
  return out += "]}";
}

}  // namespace tandem
