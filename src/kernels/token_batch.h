// The tokens of one pass: what they are, where their keys and values go, and which keys they may see. Torch-free.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/kv_layout.h"

namespace tandem::kernels {

struct TokenBatch {
  std::vector<int32_t> ids;
  std::vector<int32_t> positions;  // absolute, one a token
  AttentionBatch attention;
  std::vector<SlotWrite> writes;  // where the tokens' keys and values go
  int64_t num_blocks = 0;         // of the kv tensors that `writes` and the block tables index

  int64_t num_tokens() const { return static_cast<int64_t>(ids.size()); }
};

// Paged: keys lie in a cache that outlives the pass, every token is written once, tokens in order. Packed: all keys a
// token may see belong to tokens of the same batch.
enum class KeyLayout { kPaged, kPacked };

// A batch's arrays in a device's memory, in whatever form its kernels want.
struct DeviceBatch {
  virtual ~DeviceBatch() = default;
};

struct PlacedBatch {
  const TokenBatch& tokens;  // must outlive it
  KeyLayout layout;
  std::shared_ptr<const DeviceBatch> device;  // null on the CPU
};

}  // namespace tandem::kernels
