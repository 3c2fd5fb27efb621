#include "parallel/cuda/peer_processes.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "parallel/collectives.h"

namespace tandem {

PeerProcesses::PeerProcesses(Communicator& group) {
  for (const pid_t pid : all_gather_values(group, "processes of the ranks", getpid()))
    handles_.push_back(pid == getpid() ? -1 : static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
}

PeerProcesses::~PeerProcesses() {
  for (const int handle : handles_)
    if (handle >= 0) close(handle);
}

std::optional<int> PeerProcesses::ended(std::span<const int> ranks) const {
  for (const int rank : ranks) {
    pollfd ask{handles_.at(static_cast<size_t>(rank)), POLLIN, 0};  // poll() leaves negative ones out
    if (poll(&ask, 1, 0) > 0) return rank;
  }
  return std::nullopt;
}

}  // namespace tandem
