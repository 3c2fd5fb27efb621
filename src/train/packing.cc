#include "train/packing.h"

#include <algorithm>

#include "base/error.h"

namespace tandem {
namespace {

using kernels::kKvBlock;

bool same_prompt(const PackItem& a, const PackItem& b) {
  return a.prompt.data() == b.prompt.data() && a.prompt.size() == b.prompt.size();
}

int64_t item_tokens(const PackItem& item, bool with_prompt) {
  return static_cast<int64_t>(item.response.size()) - 1 + (with_prompt ? static_cast<int64_t>(item.prompt.size()) : 0);
}

class Packer {
 public:
  explicit Packer(bool row_per_target) : row_per_target_(row_per_target) {}
  PackedBatch finish() && { return std::move(out_); }

  // The prompt's tokens; its blocks stay in `prompt_blocks_` for the responses that follow.
  void add_prompt(std::span<const TokenId> prompt) {
    prompt_ = prompt;
    prompt_token_ = num_tokens();
    prompt_row_ = -1;
    prompt_blocks_ = new_blocks(static_cast<int64_t>(prompt.size()));
    add_span(prompt, 0, -1, prompt_blocks_);
  }

  void add_response(std::span<const TokenId> response, int32_t item) {
    check(!prompt_.empty() && !response.empty(), "prompt and response must not be empty");
    if (prompt_row_ < 0 || row_per_target_)
      prompt_row_ = new_row(prompt_token_ + static_cast<int32_t>(prompt_.size()) - 1);
    out_.targets.push_back({prompt_row_, response[0], item, 0});
    if (response.size() == 1) return;
    const auto length = static_cast<int64_t>(prompt_.size());
    const int64_t whole = length / kKvBlock, inputs = static_cast<int64_t>(response.size()) - 1;
    std::vector<int32_t> table(prompt_blocks_.begin(), prompt_blocks_.begin() + whole);
    const auto own = new_blocks(length + inputs - whole * kKvBlock);
    table.insert(table.end(), own.begin(), own.end());
    for (int64_t p = whole * kKvBlock; p < length; ++p) add_write(prompt_token_ + static_cast<int32_t>(p), p, table);
    const int32_t first = num_tokens();
    add_span(response.first(static_cast<size_t>(inputs)), length, prompt_token_, table);
    for (int64_t i = 0; i < inputs; ++i)
      out_.targets.push_back(
          {new_row(first + static_cast<int32_t>(i)), response[i + 1], item, static_cast<int32_t>(i + 1)});
  }

 private:
  int32_t num_tokens() const { return static_cast<int32_t>(out_.tokens.ids.size()); }

  int32_t new_row(int32_t token) {
    out_.rows.push_back(token);
    return static_cast<int32_t>(out_.rows.size()) - 1;
  }

  std::vector<int32_t> new_blocks(int64_t positions) {
    std::vector<int32_t> blocks;
    for (int64_t p = 0; p < positions; p += kKvBlock) blocks.push_back(static_cast<int32_t>(out_.tokens.num_blocks++));
    return blocks;
  }

  void add_write(int32_t token, int64_t position, std::span<const int32_t> table) {
    const int64_t slot = table[position / kKvBlock] * kKvBlock + position % kKvBlock;
    out_.tokens.writes.push_back({token, static_cast<int32_t>(slot)});
  }

  void add_span(std::span<const TokenId> ids, int64_t first_position, int32_t prefix_token,
                std::span<const int32_t> table) {
    auto& t = out_.tokens;
    t.attention.spans.push_back({num_tokens(), static_cast<int32_t>(ids.size()), static_cast<int32_t>(first_position),
                                 static_cast<int32_t>(t.attention.block_tables.size()), prefix_token});
    t.attention.block_tables.insert(t.attention.block_tables.end(), table.begin(), table.end());
    for (size_t i = 0; i < ids.size(); ++i) {
      const int64_t position = first_position + static_cast<int64_t>(i);
      add_write(num_tokens(), position, table);
      t.ids.push_back(ids[i]);
      t.positions.push_back(static_cast<int32_t>(position));
    }
  }

  PackedBatch out_;
  bool row_per_target_;
  std::span<const TokenId> prompt_;
  std::vector<int32_t> prompt_blocks_;
  int32_t prompt_token_ = 0, prompt_row_ = -1;
};

}  // namespace

PackedBatch pack(std::span<const PackItem> items, bool row_per_target) {
  Packer packer(row_per_target);
  for (size_t i = 0; i < items.size(); ++i) {
    if (i == 0 || !same_prompt(items[i], items[i - 1])) packer.add_prompt(items[i].prompt);
    packer.add_response(items[i].response, static_cast<int32_t>(i));
  }
  PackedBatch packed = std::move(packer).finish();
  std::stable_sort(packed.targets.begin(), packed.targets.end(),
                   [](const PackTarget& a, const PackTarget& b) { return a.row < b.row; });
  return packed;
}

void keep_targets(PackedBatch& batch, int64_t first_token, int64_t end_token) {
  std::vector<int32_t> rows, place(batch.rows.size(), -1);
  for (size_t r = 0; r < batch.rows.size(); ++r) {
    if (batch.rows[r] < first_token || batch.rows[r] >= end_token) continue;
    place[r] = static_cast<int32_t>(rows.size());
    rows.push_back(batch.rows[r] - static_cast<int32_t>(first_token));
  }
  batch.rows = std::move(rows);
  std::erase_if(batch.targets, [&](const PackTarget& target) { return place[target.row] < 0; });
  for (PackTarget& target : batch.targets) target.row = place[target.row];
}

int64_t packed_tokens(std::span<const PackItem> items) {
  int64_t tokens = 0;
  for (size_t i = 0; i < items.size(); ++i)
    tokens += item_tokens(items[i], i == 0 || !same_prompt(items[i], items[i - 1]));
  return tokens;
}

std::vector<size_t> split_micro_batches(std::span<const PackItem> items, int64_t max_tokens, int64_t max_items,
                                        size_t unit, int64_t max_shared) {
  std::vector<size_t> ends;
  int64_t tokens = 0, count = 0;
  for (size_t i = 0; i < items.size(); i += unit) {
    const size_t last = std::min(items.size(), i + unit);
    const bool shares = count > 0 && same_prompt(items[i], items[i - 1]);
    const int64_t alone = packed_tokens(items.subspan(i, last - i));
    int64_t more = shares ? alone - static_cast<int64_t>(items[i].prompt.size()) : alone;
    const int64_t most = shares ? std::max(max_tokens, max_shared) : max_tokens;
    if (count > 0 && (tokens + more > most || (max_items > 0 && count >= max_items))) {
      ends.push_back(i);
      tokens = count = 0;
      more = alone;
    }
    tokens += more;
    ++count;
  }
  if (!items.empty()) ends.push_back(items.size());
  return ends;
}

std::vector<std::vector<float>> values_of_tokens(std::span<const PackItem> items) {
  std::vector<std::vector<float>> all;
  for (const PackItem& item : items) all.emplace_back(item.response.size());
  return all;
}

}  // namespace tandem
