// The configuration itself: whether it can be run, what is hardly meant, and every size that follows from it.
#pragma once

#include <optional>

#include "config/load.h"
#include "preflight/finding.h"

namespace tandem {

// `loaded`: nothing where loading failed with `error`.
Finding check_keys(const std::optional<LoadedConfig>& loaded, const std::string& error);

}  // namespace tandem
