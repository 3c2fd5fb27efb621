// Which GPUs stand close together: under one NUMA node, or behind NVSwitches, which make all GPUs of a board one NVLink
// domain. From sysfs's PCI devices.
#pragma once

#include <string>
#include <vector>

#include "preflight/finding.h"
#include "preflight/system_files.h"

namespace tandem {

struct GpuPlace {
  std::string pci;     // 0000:1b:00.0
  int numa_node = -1;  // -1: the machine has one only, or does not say
};

struct GpuTopology {
  std::vector<GpuPlace> gpus;  // by PCI address, as CUDA_DEVICE_ORDER=PCI_BUS_ID counts them
  int num_switches = 0;
  bool one_nvlink_domain() const { return num_switches > 0; }
};
GpuTopology gpu_topology(const SystemFiles& system);

// `devices`: of this machine that the run uses; `group`: neighbours that speak to each other in every pass (tensor
// parallelism), or share a leader.
Finding check_topology(const GpuTopology& topology, int devices, int group);

}  // namespace tandem
