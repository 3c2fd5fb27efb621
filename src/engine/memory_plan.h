// How a GPU's memory is shared out: what stays, and what the cache (in rollout) and the activations (in the update)
// get. Pure arithmetic.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace tandem {

inline constexpr int64_t kWorkspaceBytes = int64_t{5} << 30;  // logits twice, attention's and products' scratch

inline constexpr std::string_view kUtilizationKey = "actor_rollout_ref.rollout.gpu_memory_utilization";

struct MemoryPlan {
  int64_t kv_cache_bytes = 0, activation_bytes = 0;
};

// Training state that ranks keep in parts (train/fsdp.h).
struct Spread {
  int parts = 1;
  int64_t outside = 0, block = 0;  // parameters that stand outside the blocks, and of a block
};

// A parameter keeps 2 bytes of compute weight and, trained, 12 of fp32 master and moments; its gradient's 4 live in
// the update only. `workspace`: logits and scratch. ConfigError with the sum where too little is left.
// `frozen_parameters`: those that only compute, of models beside it or under its adapters. `key`: what sets the
// utilization; empty: nothing does.
// With `spread` a rank keeps its part of weights, masters, moments and gradients, room for two blocks' weights and
// gradients and for all gradients outside the blocks throughout; whole weights in rollout only.
MemoryPlan plan_memory(int64_t parameters, int64_t device_bytes, double utilization, int64_t workspace,
                       int64_t frozen_parameters = 0, std::string_view key = kUtilizationKey,
                       const std::optional<Spread>& spread = {});

}  // namespace tandem
