// Who answers for what: of the ranks that hold the same rectangle of a tensor (replicas, what tensor parallelism leaves
// whole, a tied embedding) one, so that all ranks together name every element of a model exactly once.
#pragma once

#include <vector>

#include "parallel/placement.h"

namespace tandem {

// By rank. The holders of copies take turns, parameter by parameter, so that the work spreads.
std::vector<std::vector<Held>> owned(const ParameterList& list, const Layout& layout);

}  // namespace tandem
