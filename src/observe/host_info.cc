#include "observe/host_info.h"

#include <sched.h>
#include <unistd.h>

#include <charconv>
#include <fstream>
#include <sstream>

namespace tandem {
namespace {

// Files of /proc have no size to map by.
std::string read_proc(const char* path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// The rest of the first line that starts with `key`, after ':' and blanks; "" when there is none.
std::string_view field(std::string_view text, std::string_view key) {
  while (!text.empty()) {
    const auto line = text.substr(0, text.find('\n'));
    const auto after_key = line.starts_with(key) ? line.find_first_not_of(" \t", key.size()) : std::string_view::npos;
    if (after_key != std::string_view::npos && line[after_key] == ':') {
      const auto value = line.find_first_not_of(" \t", after_key + 1);
      return value == std::string_view::npos ? std::string_view() : line.substr(value);
    }
    text.remove_prefix(std::min(text.size(), line.size() + 1));
  }
  return {};
}

// "123 kB", where kB means 1024 bytes.
double gb_field(std::string_view text, std::string_view key) {
  const auto value = field(text, key);
  uint64_t kib = 0;
  std::from_chars(value.data(), value.data() + value.size(), kib);
  return static_cast<double>(kib) / (1024.0 * 1024.0);
}

}  // namespace

ProcessMemory parse_process_memory(std::string_view status) {
  return {gb_field(status, "VmRSS"), gb_field(status, "VmHWM")};
}

HostMemory parse_host_memory(std::string_view meminfo) {
  return {gb_field(meminfo, "MemTotal"), gb_field(meminfo, "MemAvailable")};
}

std::string parse_cpu_model(std::string_view cpuinfo) {
  const auto model = field(cpuinfo, "model name");
  return model.empty() ? "unknown" : std::string(model);
}

ProcessMemory process_memory() { return parse_process_memory(read_proc("/proc/self/status")); }
HostMemory host_memory() { return parse_host_memory(read_proc("/proc/meminfo")); }

CpuInfo cpu_info() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  const int cores = ::sched_getaffinity(0, sizeof(allowed), &allowed) == 0 ? CPU_COUNT(&allowed) : 1;
  return {parse_cpu_model(read_proc("/proc/cpuinfo")), cores};
}

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof(name) - 1) == 0 ? name : "this host";
}

}  // namespace tandem
