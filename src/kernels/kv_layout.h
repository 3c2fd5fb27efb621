// How keys and values lie in memory, and which of them a query may see. Torch-free.
//
// A block holds kKvBlock consecutive absolute positions of one sequence. Its floats, per key/value head:
//   keys   [D][kKvBlock]  (dim-major: one vector load covers neighbouring keys)
//   values [kKvBlock][D]
// A kv tensor has shape [blocks, 2, K, D · kKvBlock]; slot = block · kKvBlock + offset.
// Sums over keys are cut at block borders, which are absolute positions: the same in every path.
#pragma once

#include <cstdint>
#include <vector>

namespace tandem::kernels {

constexpr int kKvBlock = 16;

// Token `token` of the batch is stored at `slot`. A shared prompt's tail is written once for each of its samples.
struct SlotWrite {
  int32_t token;
  int32_t slot;
};

// A run of tokens of one sequence: query i has absolute position first_position + i and sees positions 0 … itself.
struct QuerySpan {
  int32_t first_token;
  int32_t num_tokens;
  int32_t first_position;
  int32_t first_block;        // index into block_tables of the block holding position 0
  int32_t prefix_token = -1;  // packed: the token of position 0, where first_position > 0
};

struct AttentionBatch {
  std::vector<QuerySpan> spans;
  std::vector<int32_t> block_tables;
};

}  // namespace tandem::kernels
