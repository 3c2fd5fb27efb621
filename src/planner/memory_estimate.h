// What a run takes of a device's memory, role by role and phase by phase, before anything is loaded. Pure arithmetic
// over sizes: docs/preflight.md has the formulas and what was measured against them. Bytes throughout.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parallel/mesh.h"
#include "planner/model_shape.h"

namespace tandem {

// What decides the sizes, of one role's model.
struct RoleSizes {
  std::string role;  // "actor", "critic", "reference", "reward"
  ModelShape model;
  int64_t trained_parameters = 0;  // 0: all; fewer where adapters train
  bool trains = false, generates = false;
  Layout layout;  // of the update; generation holds whole weights but for tp
};

struct WorkloadSizes {
  int64_t prompts = 0, samples_per_prompt = 1;        // of a step
  int64_t prompt_length = 0, response_length = 0;     // most tokens
  int64_t mini_batch_samples = 0;                     // of an optimizer step
  int64_t micro_batch_tokens = 0;                     // most in a training pass
  int64_t rollout_pass_tokens = 0, rollout_seqs = 0;  // most at once
  int64_t kv_cache_bytes = 0;                         // most that the cache may take on the CPU
  bool recompute = true;                              // beyond the activations' budget
  bool copies_state = false;                          // a copy of the whole state is kept in memory for saving
  bool copies_before_end = false;                     // ... and updates follow it
};

struct DeviceKind {
  bool gpu = false;
  int64_t bytes = 0;       // of a GPU; 0: unknown
  double utilization = 0;  // share of a GPU that the run may take
};

// Of one role on one device, in the phase in which each is held.
struct RoleMemory {
  std::string role;
  int64_t weights = 0;  // to compute with
  int64_t masters_and_moments = 0;
  int64_t gradients = 0;    // in the update
  int64_t kv_cache = 0;     // in rollout; on a GPU what is left
  int64_t activations = 0;  // the most of any pass, logits and scratch included; on a GPU what is left
  int64_t state_copy = 0;   // of rank 0's host
};

struct PhasePeak {
  std::string phase;  // "rollout", "update", "save"
  int64_t bytes = 0;
};

struct MemoryEstimate {
  std::vector<RoleMemory> roles;
  int64_t libraries = 0;  // the program and its libraries, for each process
  std::vector<PhasePeak> phases;
  int64_t peak = 0;  // on the CPU the greatest phase of one process; on a GPU the least that the run needs
  int64_t processes_on_host = 1;
  int64_t host_peak = 0;  // of all processes of a machine; the first of them alone holds the state's copy
};

MemoryEstimate estimate_memory(const std::vector<RoleSizes>& roles, const WorkloadSizes& work, const DeviceKind& device,
                               int processes_on_host);

}  // namespace tandem
