// From a configuration and the models it names to what the memory estimate wants to know.
#pragma once

#include <vector>

#include "config/config.h"
#include "model/model_config.h"
#include "planner/memory_estimate.h"

namespace tandem {

ModelShape shape_of(const ModelConfig& config);

struct MemoryQuestion {
  std::vector<RoleSizes> roles;  // the actor first
  WorkloadSizes work;
  DeviceKind device;
  int processes_on_host = 1;

  MemoryEstimate estimate() const { return estimate_memory(roles, work, device, processes_on_host); }
  int64_t checkpoint_bytes = 0;  // of one checkpoint of all roles that train
  int64_t saves = 0;             // of the run; 0: unknown
};

// Reads config.json of each model; ConfigError or IoError as those do.
MemoryQuestion memory_question(const Config& config);

}  // namespace tandem
