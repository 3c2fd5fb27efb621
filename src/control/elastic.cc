#include "control/elastic.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"

namespace tandem {

std::vector<int> all_ranks(int planned) {
  std::vector<int> ranks(static_cast<size_t>(planned));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

std::vector<int> fewer_ranks(const std::vector<int>& ranks, std::optional<int> missing, int unit, int least) {
  check(!ranks.empty() && unit >= 1, "a run has a first rank");
  std::vector<int> left = ranks;
  const auto gone = missing ? std::find(left.begin() + 1, left.end(), *missing) : left.end();
  if (gone != left.end()) {
    left.erase(gone);
  } else {
    left.pop_back();
  }
  left.resize(left.size() / static_cast<size_t>(unit) * static_cast<size_t>(unit));
  if (left.empty() || left.size() < static_cast<size_t>(least)) return {};
  return left;
}

int shard_size(int data, int planned) {
  int size = std::clamp(planned, 1, data);
  while (data % size != 0) ++size;
  return size;
}

}  // namespace tandem
