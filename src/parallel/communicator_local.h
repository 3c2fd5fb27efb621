// Threads of one process as ranks: parts are copied straight from the sender's memory.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "parallel/communicator.h"

namespace tandem {

// One communicator a rank, to be handed to its thread. A group lives as long as any of them.
std::vector<std::unique_ptr<Communicator>> make_local_group(int size, Timeout timeout = kDefaultTimeout);

// Runs fn(communicator) on `size` threads and waits for all. A rank that throws ends the others' exchanges. Throws what
// the first rank to fail threw.
void run_ranks(int size, const std::function<void(Communicator&)>& fn, Timeout timeout = kDefaultTimeout);

}  // namespace tandem
