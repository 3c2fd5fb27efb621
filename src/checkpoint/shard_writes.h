// Files of a checkpoint that are written, or read, side by side.
#pragma once

#include <functional>
#include <vector>

#include "checkpoint/safetensors.h"

namespace tandem {

// One function a file of write_weight_folder(), of about `files` files of one size; the index is written at once, so
// the folder is whole when all of them have run. `fetch` must stand being called by several threads, and what it
// returns must stay.
std::vector<std::function<void()>> weight_shard_writes(const std::filesystem::path& folder,
                                                       std::vector<TensorSpec> tensors, const FetchBytes& fetch,
                                                       size_t files, WritePace* pace);

// Each in a thread, a bounded number at a time. Throws what the first that failed threw, after all have ended.
void run_side_by_side(const std::vector<std::function<void()>>& writes);

}  // namespace tandem
