// Which block of the paged cache holds what. Blocks are reference-counted; whole blocks of known content can be found
// again by their tokens (the prefix cache), exactly: the key is the tokens themselves and the content before them.
// Not thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "data/types.h"
#include "kernels/kv_layout.h"

namespace tandem {

class BlockManager {
 public:
  BlockManager(int64_t num_blocks, bool prefix_caching);

  bool prefix_caching() const { return prefix_caching_; }
  int64_t num_blocks() const { return static_cast<int64_t>(blocks_.size()); }
  int64_t num_free() const { return static_cast<int64_t>(free_.size()); }  // cached but unused ones included

  // A block of unknown content with one owner; nothing when all are in use.
  std::optional<int32_t> allocate();
  void share(int32_t block);
  void release(int32_t block);  // the content stays findable until the block is allocated again

  // The longest run of cached blocks that spell the beginning of `tokens`, at most `max_blocks`; each gains an owner.
  std::vector<int32_t> acquire_prefix(std::span<const TokenId> tokens, int64_t max_blocks);
  // Says that `table`'s first whole blocks hold `tokens`. Blocks already registered are skipped.
  void register_content(std::span<const int32_t> table, std::span<const TokenId> tokens);

 private:
  using ContentId = int64_t;
  static constexpr ContentId kRoot = 0, kUnknown = -1;
  struct Key {
    ContentId parent;
    std::array<TokenId, kernels::kKvBlock> tokens;
    auto operator<=>(const Key&) const = default;
  };
  struct Block {
    int32_t owners = 0;
    ContentId content = kUnknown;
    Key key{};
    std::list<int32_t>::iterator place;  // in free_, while it has no owner
  };
  struct Cached {
    int32_t block;
    ContentId content;
  };
  static Key key_of(ContentId parent, std::span<const TokenId> tokens, int64_t index);
  void forget(Block& block);

  std::vector<Block> blocks_;
  std::list<int32_t> free_;  // least recently used first
  std::map<Key, Cached> cache_;
  ContentId next_content_ = 1;
  bool prefix_caching_;
};

}  // namespace tandem
