#include "parallel/balance.h"

#include <algorithm>
#include <queue>

namespace tandem {
namespace {

struct Subset {
  int64_t cost = 0;
  std::vector<size_t> items;
};

// A partial solution: `parts` subsets, heaviest first, and how far they are apart.
struct Partition {
  std::vector<Subset> subsets;
  size_t first_item = 0;  // among equals the earliest goes first
  int64_t spread() const { return subsets.front().cost - subsets.back().cost; }
};

struct SmallerSpread {
  bool operator()(const Partition& a, const Partition& b) const {
    return a.spread() != b.spread() ? a.spread() < b.spread() : a.first_item > b.first_item;
  }
};

// The heaviest of one joins the lightest of the other.
Partition merged(Partition a, Partition b) {
  const size_t parts = a.subsets.size();
  for (size_t i = 0; i < parts; ++i) {
    Subset& to = a.subsets[i];
    Subset& from = b.subsets[parts - 1 - i];
    to.cost += from.cost;
    to.items.insert(to.items.end(), from.items.begin(), from.items.end());
  }
  std::stable_sort(a.subsets.begin(), a.subsets.end(),
                   [](const Subset& x, const Subset& y) { return x.cost > y.cost; });
  a.first_item = std::min(a.first_item, b.first_item);
  return a;
}

}  // namespace

int64_t sequence_cost(int64_t tokens, int64_t attention_tokens) {
  if (attention_tokens <= 0) return tokens;
  return tokens + tokens * tokens / attention_tokens;
}

std::vector<int> balanced_parts(std::span<const int64_t> costs, int parts) {
  std::vector<int> part_of(costs.size(), 0);
  if (parts <= 1 || costs.empty()) return part_of;
  std::priority_queue<Partition, std::vector<Partition>, SmallerSpread> open;
  for (size_t i = 0; i < costs.size(); ++i) {
    Partition single{std::vector<Subset>(static_cast<size_t>(parts)), i};
    single.subsets[0] = {costs[i], {i}};
    open.push(std::move(single));
  }
  while (open.size() > 1) {
    Partition a = open.top();
    open.pop();
    Partition b = open.top();
    open.pop();
    open.push(merged(std::move(a), std::move(b)));
  }
  const Partition& best = open.top();
  for (size_t part = 0; part < best.subsets.size(); ++part)
    for (const size_t item : best.subsets[part].items) part_of[item] = static_cast<int>(part);
  return part_of;
}

double imbalance(std::span<const int64_t> costs, std::span<const int> part_of, int parts) {
  std::vector<int64_t> sums(static_cast<size_t>(parts));
  int64_t total = 0;
  for (size_t i = 0; i < costs.size(); ++i) sums[static_cast<size_t>(part_of[i])] += costs[i], total += costs[i];
  if (total == 0) return 0;
  const auto most = static_cast<double>(*std::max_element(sums.begin(), sums.end()));
  return most * parts / static_cast<double>(total) - 1;
}

}  // namespace tandem
