#include "app/teacher_forcing.h"

#include <algorithm>
#include <numeric>

#include "train/trainer.h"

namespace tandem {
namespace {

using kernels::kKvBlock;
constexpr int64_t kMicroTokens = 2048;

// One sequence through its own paged cache.
class PagedReader {
 public:
  PagedReader(const Decoder& decoder, std::span<const TokenId> ids, float inverse_temperature)
      : decoder_(decoder),
        ids_(ids),
        inverse_(inverse_temperature),
        num_blocks_((static_cast<int64_t>(ids.size()) + kKvBlock - 1) / kKvBlock),
        kv_(decoder.make_kv(num_blocks_)) {}

  // Feeds tokens [first, last) and appends the log-prob of each one's successor.
  void feed(size_t first, size_t last, std::vector<float>& out) {
    TokenBatch batch;
    batch.num_blocks = num_blocks_;
    batch.attention.block_tables.resize(static_cast<size_t>(num_blocks_));
    std::iota(batch.attention.block_tables.begin(), batch.attention.block_tables.end(), 0);
    batch.attention.spans.push_back({0, static_cast<int32_t>(last - first), static_cast<int32_t>(first), 0});
    std::vector<int32_t> rows;
    for (size_t i = first; i < last; ++i) {
      const auto token = static_cast<int32_t>(i - first), position = static_cast<int32_t>(i);
      batch.ids.push_back(ids_[i]);
      batch.positions.push_back(position);
      batch.writes.push_back({token, position});  // block i holds positions 16 i ... : slot and position agree
      if (i + 1 < ids_.size()) rows.push_back(token);
    }
    const at::Tensor x = decoder_.forward(batch, kv_);
    if (rows.empty()) return;
    const int64_t vocab = decoder_.config().vocab_size;
    at::Tensor logits = kernels::empty_fp32({static_cast<int64_t>(rows.size()), vocab}, x);
    decoder_.logits(decoder_.final_norm(x, rows), logits);
    std::vector<kernels::LogitTarget> targets;
    for (size_t r = 0; r < rows.size(); ++r) targets.push_back({static_cast<int32_t>(r), ids_[first + r + 1]});
    const std::vector<float> inverse(rows.size(), inverse_);
    std::vector<kernels::TargetStats> found(rows.size());
    kernels::LogitStats stats;
    kernels::target_logprobs(logits, inverse, targets, false, stats, found);
    for (const auto& target : found) out.push_back(target.logprob);
  }

 private:
  const Decoder& decoder_;
  std::span<const TokenId> ids_;
  float inverse_;
  int64_t num_blocks_;
  std::vector<at::Tensor> kv_;
};

}  // namespace

LogprobLists training_logprobs(const Decoder& decoder, const TokenLists& sequences, double temperature) {
  LogprobLists all(sequences.size());
  std::vector<PackItem> items;
  std::vector<size_t> places;
  for (size_t i = 0; i < sequences.size(); ++i) {
    const std::span<const TokenId> ids(sequences[i]);
    if (ids.size() < 2) continue;
    items.push_back({ids.first(1), ids.subspan(1)});
    places.push_back(i);
  }
  const std::vector<double> temperatures(items.size(), temperature);
  auto found = packed_logprobs(decoder, items, temperatures, kMicroTokens);
  for (size_t i = 0; i < places.size(); ++i) all[places[i]] = std::move(found[i]);
  return all;
}

LogprobLists rollout_logprobs(const Decoder& decoder, const TokenLists& sequences, double temperature) {
  LogprobLists all;
  for (const auto& ids : sequences) {
    std::vector<float>& out = all.emplace_back();
    PagedReader reader(decoder, ids, static_cast<float>(1.0 / temperature));
    const size_t prompt = (ids.size() + 1) / 2;
    reader.feed(0, prompt, out);
    for (size_t i = prompt; i + 1 < ids.size(); ++i) reader.feed(i, i + 1, out);
  }
  return all;
}

}  // namespace tandem
