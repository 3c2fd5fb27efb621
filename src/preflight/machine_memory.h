// The memory that this machine has, and what the control groups leave of it. Bytes.
#pragma once

#include <cstdint>

#include "preflight/system_files.h"

namespace tandem {

struct MachineMemory {
  int64_t total = 0;      // of the machine; 0: unknown
  int64_t available = 0;  // to be had without swapping, within the limit too
  int64_t limit = 0;      // the tightest of this process's control groups; 0: none below the total
  // What no process here can exceed.
  int64_t most() const { return limit > 0 ? limit : total; }
};

// Control groups of both versions. A container sees its own as the root of the tree, whatever path it is told.
MachineMemory machine_memory(const SystemFiles& system);

}  // namespace tandem
