// The GPUs' meters by NVIDIA's management library, which the driver brings; without it there are none.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace tandem {

// The few calls of libnvidia-ml.so.1 that are used, by its names, types and layouts (nvml.h). Each returns 0 for
// success.
struct NvmlUtilization {
  unsigned gpu = 0, memory = 0;  // per cent of the last sample period in which a kernel ran, memory was read or written
};
struct NvmlMemory {
  unsigned long long total = 0, free = 0, used = 0;  // bytes
};
struct NvmlCalls {
  int (*init)() = nullptr;                                // nvmlInit_v2
  int (*count)(unsigned*) = nullptr;                      // nvmlDeviceGetCount_v2
  int (*device)(unsigned, void**) = nullptr;              // nvmlDeviceGetHandleByIndex_v2
  int (*utilization)(void*, NvmlUtilization*) = nullptr;  // nvmlDeviceGetUtilizationRates
  int (*memory)(void*, NvmlMemory*) = nullptr;            // nvmlDeviceGetMemoryInfo
  int (*name)(void*, char*, unsigned) = nullptr;          // nvmlDeviceGetName, which takes the buffer's size
};

// Opens the library for good; nothing where it or one of the calls is missing.
std::optional<NvmlCalls> load_nvml(const char* library = "libnvidia-ml.so.1");

struct GpuReading {
  std::string name;  // "NVIDIA H200"
  double busy = 0;   // share, 0 to 1
  double memory_used_gb = 0, memory_total_gb = 0;
};

class GpuMeters {
 public:
  explicit GpuMeters(std::optional<NvmlCalls> calls);
  // One a GPU, in the library's order; what a GPU does not tell is 0.
  std::vector<GpuReading> read() const;

 private:
  std::optional<NvmlCalls> calls_;
  std::vector<void*> devices_;
};

}  // namespace tandem
