// Several ranks measured and checked from outside the engine. Every function is called by all ranks together; rank 0
// prints, a line of JSON each.
#pragma once

#include <c10/core/Device.h>

#include <filesystem>

#include "parallel/communicator.h"

namespace tandem {

// Every collective on the ranks' device memory against host arithmetic, resharding, and sharded training against one
// rank in the place of all, bit for bit. False where something differs.
bool check_ranks(Communicator& world, at::Device device);

// Bytes that a rank receives in an all_gather, by second, of messages of several sizes; returns the best.
double measure_all_gather(Communicator& world, at::Device device);

// The switch from sharded training to whole weights, and by a reshard plan to tensor parallelism, of random weights of
// a config.json's shape: seconds, bytes against the least possible, peak memory beside the weights.
void measure_switch(Communicator& world, const std::filesystem::path& model, at::Device device, int64_t repeats);

// The last rank dies, or hangs, before an exchange: prints how long the others took to find out. For one use: the ranks
// are of no more use. False where the error does not name the rank.
bool check_failure(Communicator& world, at::Device device, bool hangs);

}  // namespace tandem
