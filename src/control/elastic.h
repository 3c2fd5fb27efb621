// With which of its ranks a run goes on when some do not come back. Pure functions.
#pragma once

#include <optional>
#include <vector>

namespace tandem {

// 0, 1, ...: the ranks as they were planned. A rank keeps its number while others are missing.
std::vector<int> all_ranks(int planned);

// `ranks` (ascending, the first of them leads and stays) without `missing`; nothing: nobody knows which, and the last
// one goes. Of what is left, as many as `unit` divides (ranks that share a product work together or not at all). Empty
// where fewer than `least` would be left.
std::vector<int> fewer_ranks(const std::vector<int>& ranks, std::optional<int> missing, int unit, int least);

// Ranks in a group that shares the training state, of `data` data-parallel ranks: the smallest number that divides them
// and is at least what was planned, so that no rank holds more than it must.
int shard_size(int data, int planned);

}  // namespace tandem
