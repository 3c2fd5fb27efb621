#include "preflight/topology.h"

#include <fmt/format.h>

#include <set>

namespace tandem {
namespace {

constexpr int64_t kNvidia = 0x10de;
constexpr int64_t kDisplay = 0x03, kBridge = 0x0680;  // classes: VGA or 3D controller; "other bridge", an NVSwitch

std::string place_text(const GpuPlace& gpu) { return fmt::format("{} on NUMA node {}", gpu.pci, gpu.numa_node); }

}  // namespace

GpuTopology gpu_topology(const SystemFiles& system) {
  GpuTopology out;
  const std::string folder = "/sys/bus/pci/devices";
  for (const std::string& name : system.list(folder)) {
    const std::string device = folder + "/" + name;
    if (system.read_hex(device + "/vendor") != kNvidia) continue;
    const int64_t device_class = system.read_hex(device + "/class").value_or(0) >> 8;
    if (device_class >> 8 == kDisplay)
      out.gpus.push_back({name, static_cast<int>(system.read_number(device + "/numa_node").value_or(-1))});
    out.num_switches += device_class == kBridge;
  }
  return out;
}

Finding check_topology(const GpuTopology& topology, int devices, int group) {
  Finding finding{"topology", Verdict::kPass, "", "", {}};
  const auto count = static_cast<int>(topology.gpus.size());
  for (const GpuPlace& gpu : topology.gpus) finding.details.push_back(place_text(gpu));
  if (count < devices) {
    finding.worsen(Verdict::kFail, fmt::format("the run uses {} GPUs of this machine, which has {}", devices, count),
                   "set trainer.n_gpus_per_node to the GPUs that are there");
    return finding;
  }
  if (topology.one_nvlink_domain()) {
    finding.why = fmt::format("{} GPUs in one NVLink domain ({} NVSwitches)", count, topology.num_switches);
    return finding;
  }
  finding.why = fmt::format("groups of {} lie under one NUMA node each", group);
  for (int first = 0; first < devices; first += group) {
    std::set<int> nodes;
    for (int i = first; i < std::min(first + group, devices); ++i)
      nodes.insert(topology.gpus[static_cast<size_t>(i)].numa_node);
    if (nodes.size() > 1)
      finding.worsen(Verdict::kWarn,
                     fmt::format("GPUs {} to {} work as a group, but lie under {} NUMA nodes without an NVSwitch",
                                 first, std::min(first + group, devices) - 1, nodes.size()),
                     "name the GPUs so that neighbours share a node (CUDA_VISIBLE_DEVICES, with "
                     "CUDA_DEVICE_ORDER=PCI_BUS_ID); nvidia-smi topo -m shows the links");
  }
  return finding;
}

}  // namespace tandem
