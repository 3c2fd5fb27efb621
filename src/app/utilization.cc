#include "app/utilization.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>

#include <algorithm>
#include <chrono>

#include "dashboard/gpu_meters.h"
#include "planner/device_peak.h"

namespace tandem {
namespace {

struct Work {
  const char *tflop, *phase, *name;
};
constexpr Work kWorks[] = {{"actor/update_tflop", "update_actor", "perf/mfu/actor"},
                           {"rollout/tflop", "gen", "perf/mfu/actor_infer"},
                           {"critic/update_tflop", "update_critic", "perf/mfu/critic"}};

double measured_cpu_tflops() {
  constexpr int64_t kSide = 768;
  const at::Tensor a = at::empty({kSide, kSide}, at::kFloat).fill_(1),
                   b = at::empty({kSide, kSide}, at::kFloat).fill_(1);
  at::Tensor c = at::empty({kSide, kSide}, at::kFloat);
  double best = 1e9;
  for (int i = 0; i < 4; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    at::mm_out(c, a, b);
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  return 2.0 * kSide * kSide * kSide / best / 1e12;
}

}  // namespace

std::optional<double> peak_tflops(const RunConfig& config, const Decoder& policy) {
  if (config.peak_tflops) return *config.peak_tflops > 0 ? config.peak_tflops : std::nullopt;
  if (!policy.on_device()) return measured_cpu_tflops();
  const auto gpus = GpuMeters(load_nvml()).read();
  return gpus.empty() ? std::nullopt : known_peak_tflops(gpus.front().name);
}

Metrics utilization(const Metrics& step, const PhaseTimer& timer, double peak) {
  Metrics shares;
  for (const auto& [tflop, phase, name] : kWorks) {
    const double work = step.get(tflop).value_or(0), seconds = timer.seconds(phase);
    if (work > 0 && seconds > 0) shares.set(name, work / seconds / peak);
  }
  return shares;
}

}  // namespace tandem
