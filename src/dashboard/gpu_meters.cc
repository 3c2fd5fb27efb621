#include "dashboard/gpu_meters.h"

#include <dlfcn.h>

namespace tandem {
namespace {

constexpr double kGb = 1024.0 * 1024.0 * 1024.0;

template <class Call>
bool find(void* library, const char* name, Call& call) {
  call = reinterpret_cast<Call>(::dlsym(library, name));
  return call != nullptr;
}

}  // namespace

std::optional<NvmlCalls> load_nvml(const char* library) {
  void* opened = ::dlopen(library, RTLD_LAZY | RTLD_LOCAL);
  if (opened == nullptr) return std::nullopt;
  NvmlCalls calls;
  const bool whole = find(opened, "nvmlInit_v2", calls.init) && find(opened, "nvmlDeviceGetCount_v2", calls.count) &&
                     find(opened, "nvmlDeviceGetHandleByIndex_v2", calls.device) &&
                     find(opened, "nvmlDeviceGetUtilizationRates", calls.utilization) &&
                     find(opened, "nvmlDeviceGetMemoryInfo", calls.memory) &&
                     find(opened, "nvmlDeviceGetName", calls.name);
  if (whole) return calls;
  ::dlclose(opened);
  return std::nullopt;
}

GpuMeters::GpuMeters(std::optional<NvmlCalls> calls) : calls_(calls) {
  unsigned count = 0;
  if (!calls_ || calls_->init() != 0 || calls_->count(&count) != 0) return;
  for (unsigned i = 0; i < count; ++i) {
    void* device = nullptr;
    if (calls_->device(i, &device) == 0) devices_.push_back(device);
  }
}

std::vector<GpuReading> GpuMeters::read() const {
  std::vector<GpuReading> readings;
  for (void* device : devices_) {
    GpuReading& reading = readings.emplace_back();
    char name[96] = {};  // NVML_DEVICE_NAME_V2_BUFFER_SIZE
    if (calls_->name(device, name, sizeof name) == 0) reading.name = name;
    NvmlUtilization utilization;
    if (calls_->utilization(device, &utilization) == 0) reading.busy = utilization.gpu / 100.0;
    NvmlMemory memory;
    if (calls_->memory(device, &memory) == 0) {
      reading.memory_used_gb = static_cast<double>(memory.used) / kGb;
      reading.memory_total_gb = static_cast<double>(memory.total) / kGb;
    }
  }
  return readings;
}

}  // namespace tandem
