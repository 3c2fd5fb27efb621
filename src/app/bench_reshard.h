#pragma once

#include <filesystem>

namespace tandem {

// tandem bench reshard: what a switch between two layouts moves, for every pair of layouts of `ranks` ranks that fit
// the model: bytes by plan (and counted, where the model is small enough to do it between threads), by HybridFlow's
// formula, and by a naive gather. Bytes are of bf16 weights.
int bench_reshard(const std::filesystem::path& model, int ranks);

}  // namespace tandem
