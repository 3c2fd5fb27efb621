#pragma once

#include <cstdint>
#include <vector>

namespace tandem {

// The column of each row of a square matrix so that the sum is greatest (Kuhn 1955's problem, by shortest augmenting
// paths, O(n³)).
std::vector<int> best_assignment(const std::vector<std::vector<int64_t>>& value);

}  // namespace tandem
