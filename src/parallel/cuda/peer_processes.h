// The processes behind a group's ranks, on one machine: whether one has ended is known at once, though its GPU is only
// missed when a transfer runs into its timeout. Torch-free.
#pragma once

#include <optional>
#include <vector>

#include "parallel/communicator.h"

namespace tandem {

class PeerProcesses {
 public:
  // Called by all ranks of `group` together.
  explicit PeerProcesses(Communicator& group);
  ~PeerProcesses();
  PeerProcesses(const PeerProcesses&) = delete;
  PeerProcesses& operator=(const PeerProcesses&) = delete;

  // The first of `ranks` whose process has ended. Thread-safe.
  std::optional<int> ended(std::span<const int> ranks) const;

 private:
  std::vector<int> handles_;  // by rank; negative: the system gives none
};

}  // namespace tandem
