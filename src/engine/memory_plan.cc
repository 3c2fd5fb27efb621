#include "engine/memory_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace tandem {
namespace {

constexpr int64_t kWeightBytes = 2, kStateBytes = 12, kGradientBytes = 4;
constexpr int64_t kLeast = 256 << 20;  // of cache or activations, to be of use

double gib(int64_t bytes) { return static_cast<double>(bytes) / (1024.0 * 1024 * 1024); }

}  // namespace

MemoryPlan plan_memory(int64_t parameters, int64_t device_bytes, double utilization, int64_t workspace,
                       int64_t frozen_parameters, std::string_view key, const std::optional<Spread>& spread) {
  const auto budget = static_cast<int64_t>(static_cast<double>(device_bytes) * utilization);
  int64_t weights = (parameters + frozen_parameters) * kWeightBytes, state = parameters * kStateBytes,
          gradients = parameters * kGradientBytes;
  if (spread) {
    const int64_t part = (parameters + spread->parts - 1) / spread->parts;
    weights += 2 * spread->block * kWeightBytes;
    state = part * (kWeightBytes + kStateBytes);
    const int64_t travelling = std::max(spread->outside, spread->block);  // others' parts of one sum
    gradients = (part + spread->outside + 2 * spread->block + travelling) * kGradientBytes;
  }
  const int64_t all = weights + state + gradients + workspace;
  const int64_t rollout = spread ? all : all - gradients;
  const int64_t update = spread ? all - (parameters - spread->outside) * kWeightBytes : all;
  const MemoryPlan plan{budget - rollout, budget - update};
  if (std::min(plan.kv_cache_bytes, plan.activation_bytes) < kLeast)
    throw ConfigError(fmt::format(
        "the model does not fit: weights {:.1f} + masters and moments {:.1f} + gradients {:.1f} + workspace {:.1f} = "
        "{:.1f} GiB, and {:.1f} GiB may be used ({}{:.2f} of {:.1f}); {}take a smaller model",
        gib(weights), gib(state), gib(gradients), gib(workspace), gib(all), gib(budget),
        key.empty() ? "" : std::string(key) + "=", utilization, gib(device_bytes), key.empty() ? "" : "raise it, or "));
  return plan;
}

}  // namespace tandem
