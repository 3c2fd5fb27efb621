#include "preflight/memory.h"

#include <fmt/format.h>

namespace tandem {
namespace {

constexpr const char* kCpuRemedy =
    "lower actor_rollout_ref.rollout.kv_cache_memory_mb, the batch or the lengths, save without a copy "
    "(trainer.checkpoint.memory_freq=0, trainer.checkpoint.async_save=false), or take a smaller model";
constexpr const char* kGpuRemedy =
    "raise actor_rollout_ref.rollout.gpu_memory_utilization, spread the model over more devices, train adapters "
    "(actor_rollout_ref.model.lora_rank), or take a smaller model";

std::vector<std::string> table(const MemoryEstimate& estimate) {
  std::vector<std::string> lines;
  lines.push_back(fmt::format("{:<11}{:>11}{:>13}{:>11}{:>11}{:>13}{:>11}", "role", "weights", "masters+mom.",
                              "gradients", "kv cache", "activations", "copy"));
  for (const RoleMemory& r : estimate.roles)
    lines.push_back(fmt::format("{:<11}{:>11}{:>13}{:>11}{:>11}{:>13}{:>11}", r.role, gib_text(r.weights),
                                gib_text(r.masters_and_moments), gib_text(r.gradients), gib_text(r.kv_cache),
                                gib_text(r.activations), gib_text(r.state_copy)));
  std::string phases = fmt::format("libraries and workspace {}; at its peak", gib_text(estimate.libraries));
  for (const PhasePeak& phase : estimate.phases) phases += fmt::format(" {} {}", phase.phase, gib_text(phase.bytes));
  lines.push_back(phases);
  return lines;
}

void judge_host(const MemoryEstimate& estimate, const MachineMemory& host, Finding& finding) {
  if (host.most() == 0) return finding.worsen(Verdict::kWarn, "the machine does not say how much memory it has", "");
  const std::string needed =
      estimate.processes_on_host == 1
          ? gib_text(estimate.host_peak)
          : fmt::format("{} for {} processes", gib_text(estimate.host_peak), estimate.processes_on_host);
  if (estimate.host_peak > host.most()) {
    finding.worsen(Verdict::kFail,
                   fmt::format("the run takes {}, and the {} {}", needed,
                               host.limit > 0 ? "control group's limit is" : "machine has", gib_text(host.most())),
                   kCpuRemedy);
  } else if (estimate.host_peak > host.available) {
    finding.worsen(Verdict::kWarn,
                   fmt::format("the run takes {}, and {} are free now", needed, gib_text(host.available)),
                   "end what else runs on this machine, or see docs/preflight.md for what takes less");
  }
}

}  // namespace

Finding check_memory(const MemoryEstimate& estimate, const DeviceKind& device, const MachineMemory& host) {
  Finding finding{"memory", Verdict::kPass, "", "", table(estimate)};
  if (device.gpu) {
    const auto budget = static_cast<int64_t>(static_cast<double>(device.bytes) * device.utilization);
    finding.why = fmt::format("a GPU takes at least {} of {} ({:.2f} of {})", gib_text(estimate.peak), gib_text(budget),
                              device.utilization, gib_text(device.bytes));
    if (device.bytes == 0) {
      finding.worsen(Verdict::kWarn,
                     fmt::format("a GPU needs {}; no GPU here says how much it has", gib_text(estimate.peak)),
                     "run this on the machine that trains");
    } else if (estimate.peak > budget) {
      finding.worsen(Verdict::kFail,
                     fmt::format("a GPU needs {} and may take {} ({:.2f} of {})", gib_text(estimate.peak),
                                 gib_text(budget), device.utilization, gib_text(device.bytes)),
                     kGpuRemedy);
    }
  } else {
    finding.why = fmt::format("the run takes {} of {} ({} free)", gib_text(estimate.host_peak), gib_text(host.most()),
                              gib_text(host.available));
  }
  judge_host(estimate, host, finding);
  return finding;
}

}  // namespace tandem
