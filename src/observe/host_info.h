// What the machine and this process have and use, read from /proc. GB are 2^30 bytes, as verl counts them.
#pragma once

#include <string>
#include <string_view>

namespace tandem {

struct ProcessMemory {
  double resident_gb = 0;
  double peak_gb = 0;  // greatest resident size so far
};
ProcessMemory process_memory();  // zeros where /proc is absent

struct HostMemory {
  double total_gb = 0;
  double available_gb = 0;  // what can be had without swapping
};
HostMemory host_memory();

struct CpuInfo {
  std::string model;  // "unknown" where /proc/cpuinfo does not say
  int cores = 0;      // that this process may run on
};
CpuInfo cpu_info();

std::string host_name();  // "this host" where the system does not say

// The parsers behind them, on the text of /proc/self/status, /proc/meminfo and /proc/cpuinfo.
ProcessMemory parse_process_memory(std::string_view status);
HostMemory parse_host_memory(std::string_view meminfo);
std::string parse_cpu_model(std::string_view cpuinfo);

}  // namespace tandem
