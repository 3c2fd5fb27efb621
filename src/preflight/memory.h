// Whether what a run will take (planner/memory_estimate.h) is there.
#pragma once

#include "planner/memory_estimate.h"
#include "preflight/finding.h"
#include "preflight/machine_memory.h"

namespace tandem {

// On a GPU `device` gives its memory and the share that may be taken of it.
Finding check_memory(const MemoryEstimate& estimate, const DeviceKind& device, const MachineMemory& host);

}  // namespace tandem
