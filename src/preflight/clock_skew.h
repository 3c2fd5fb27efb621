// This machine's clock against the one that the storage writes times by, which all machines share.
#pragma once

#include <filesystem>
#include <functional>

#include "preflight/finding.h"

namespace tandem {

// Seconds that this machine's clock is ahead of the times of files written into `folder`, beyond what the write itself
// took. IoError naming the folder.
double clock_ahead(const std::filesystem::path& folder);

Finding check_clock(const std::filesystem::path& folder, double most_seconds,
                    const std::function<double(const std::filesystem::path&)>& measure = clock_ahead);

}  // namespace tandem
