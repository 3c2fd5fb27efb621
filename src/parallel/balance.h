// Sequences to ranks, so that all finish at about the same time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tandem {

// Work of a sequence in a block, in units of a token's linear work, as a whole number: tokens · (1 + tokens /
// attention_tokens), where a sequence of `attention_tokens` spends as much on attention as on products (with causal
// attention: hidden-size terms 12 · E · tokens² / 2 against 24 · E² · tokens gives about 4 · E). 0: products only.
int64_t sequence_cost(int64_t tokens, int64_t attention_tokens);

// The part of each item, in [0, parts): the largest differencing method of Karmarkar and Karp (1982) for many parts.
// Deterministic. Parts may be empty where there are fewer items.
std::vector<int> balanced_parts(std::span<const int64_t> costs, int parts);

// The heaviest part over the mean, minus 1: 0 is perfect.
double imbalance(std::span<const int64_t> costs, std::span<const int> part_of, int parts);

}  // namespace tandem
