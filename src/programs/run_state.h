// All that a training run is, between two steps: what resumes it bit for bit. In memory (a copy that survives the loss
// of a worker, and that another thread writes to a checkpoint) or in a folder.
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <memory>
#include <optional>

#include "data/prompt_stream.h"
#include "programs/program.h"
#include "programs/rollout_buffer.h"

namespace tandem {

struct Progressed {                                     // what the run itself remembers
  int64_t step = 0;                                     // steps done
  StreamState data;                                     // the place in the data
  std::optional<double> kl_coefficient;                 // nothing: as configured
  std::deque<std::shared_ptr<const Rollout>> rollouts;  // the last ones
};

struct RunState {
  Progressed progressed;
  ModelStateCopy actor, critic;  // critic: empty where there is none
};

// The roles that hold state; `critic` may be null.
struct StatefulRoles {
  Engine& actor;
  Critic* critic = nullptr;
};

uint64_t run_state_bytes(const StatefulRoles& roles);  // of host memory that a copy takes, rollouts left out

// Between steps. `into` is filled anew and its memory used again.
void copy_run_state(const StatefulRoles& roles, Progressed progressed, RunState& into);
// The roles become what they were; the caller sets step, place in the data and KL coefficient from `progressed`.
void restore_run_state(const RunState& state, const StatefulRoles& roles);

// A checkpoint's files: actor/, critic/, data.json, program.json, rollouts.bin. The first from a copy, on any thread;
// the second from the live roles. `pace` may be null.
void write_run_state(const std::filesystem::path& folder, const RunState& state, const StatefulRoles& roles,
                     WritePace* pace);
void write_run_state(const std::filesystem::path& folder, const Progressed& progressed, const StatefulRoles& roles);

// Restores the roles from a checkpoint and returns the rest of it; the step is the manifest's.
Progressed read_run_state(const std::filesystem::path& folder, int64_t step, const StatefulRoles& roles);

}  // namespace tandem
