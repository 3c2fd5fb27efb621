// How fast a model's files become weights in memory, beside plain reading of the same files; lines of JSON.
#pragma once

#include <filesystem>

namespace tandem {

// Each repeat drops the files from the page cache, reads them from one end to the other, drops them again, and loads
// them as training does: by one rank whole, or by `ranks` threads in the ranks' place, each its part. IoError where the
// system keeps the files in its cache.
int bench_load(const std::filesystem::path& model, int ranks, int repeats);

}  // namespace tandem
