#include "rollout/block_manager.h"

#include <algorithm>

#include "base/error.h"

namespace tandem {

using kernels::kKvBlock;

BlockManager::BlockManager(int64_t num_blocks, bool prefix_caching)
    : blocks_(static_cast<size_t>(num_blocks)), prefix_caching_(prefix_caching) {
  for (int32_t i = 0; i < num_blocks; ++i) blocks_[i].place = free_.insert(free_.end(), i);
}

std::optional<int32_t> BlockManager::allocate() {
  if (free_.empty()) return std::nullopt;
  const int32_t id = free_.front();
  free_.pop_front();
  forget(blocks_[id]);
  blocks_[id].owners = 1;
  return id;
}

void BlockManager::share(int32_t id) {
  Block& block = blocks_[id];
  if (block.owners++ == 0) free_.erase(block.place);
}

void BlockManager::release(int32_t id) {
  Block& block = blocks_[id];
  check(block.owners > 0, "a block was released more often than shared");
  if (--block.owners == 0) block.place = free_.insert(free_.end(), id);
}

BlockManager::Key BlockManager::key_of(ContentId parent, std::span<const TokenId> tokens, int64_t index) {
  Key key{parent, {}};
  std::copy_n(tokens.begin() + index * kKvBlock, kKvBlock, key.tokens.begin());
  return key;
}

void BlockManager::forget(Block& block) {
  if (block.content == kUnknown) return;
  cache_.erase(block.key);
  block.content = kUnknown;
}

std::vector<int32_t> BlockManager::acquire_prefix(std::span<const TokenId> tokens, int64_t max_blocks) {
  std::vector<int32_t> found;
  ContentId parent = kRoot;
  const int64_t whole = std::min(max_blocks, static_cast<int64_t>(tokens.size()) / kKvBlock);
  while (prefix_caching_ && static_cast<int64_t>(found.size()) < whole) {
    const auto hit = cache_.find(key_of(parent, tokens, static_cast<int64_t>(found.size())));
    if (hit == cache_.end()) break;
    share(hit->second.block);
    found.push_back(hit->second.block);
    parent = hit->second.content;
  }
  return found;
}

void BlockManager::register_content(std::span<const int32_t> table, std::span<const TokenId> tokens) {
  if (!prefix_caching_) return;
  ContentId parent = kRoot;
  const int64_t whole = std::min<int64_t>(table.size(), static_cast<int64_t>(tokens.size()) / kKvBlock);
  for (int64_t i = 0; i < whole; ++i) {
    Block& block = blocks_[table[i]];
    if (block.content == kUnknown) {
      const Key key = key_of(parent, tokens, i);
      const auto [place, fresh] = cache_.try_emplace(key, Cached{table[i], next_content_});
      // Another block with the same content is the one that is found; later blocks still chain to its content.
      if (fresh) block.content = next_content_++, block.key = key;
      parent = place->second.content;
    } else {
      parent = block.content;
    }
  }
}

}  // namespace tandem
