#include "train/preference_trainer.h"

#include <cmath>

#include "base/error.h"
#include "train/value_head.h"

namespace tandem {
namespace {

constexpr TokenId kUnread = 0;  // what follows a reply's last token

// Calls `found(item, row)` for the row after each reply's last token.
template <class Found>
void each_end(const PackedBatch& batch, const std::vector<size_t>& lengths, size_t first, const Found& found) {
  for (const PackTarget& target : batch.targets)
    if (static_cast<size_t>(target.position) + 1 == lengths[first + target.item])
      found(first + target.item, static_cast<size_t>(target.row));
}

std::vector<size_t> lengths_of(std::span<const TrainingSample> samples) {
  std::vector<size_t> lengths;
  for (const TrainingSample& sample : samples) lengths.push_back(num_tokens(sample));
  return lengths;
}

}  // namespace

PairLoss pair_loss(double margin) {
  const double small = std::exp(-std::abs(margin));  // at most 1: neither overflows
  const double wrong = margin > 0 ? small / (1 + small) : 1 / (1 + small);
  return {std::max(0.0, -margin) + std::log1p(small), -wrong};
}

TrainingSample scored_sample(const Trajectory& reply) {
  auto closed = std::make_shared<Trajectory>();
  closed->prompt = reply.prompt;
  closed->response_ids = reply.response_ids;
  closed->response_ids.push_back(kUnread);
  TrainingSample sample;
  sample.trajectory = std::move(closed);
  return sample;
}

std::vector<float> packed_scores(const Decoder& decoder, std::span<const TrainingSample> samples,
                                 int64_t max_micro_tokens) {
  std::vector<PackItem> items;
  for (const TrainingSample& sample : samples) items.push_back(pack_item(sample));
  const std::vector<size_t> lengths = lengths_of(samples);
  std::vector<float> scores(samples.size());
  for_packed(items, max_micro_tokens, decoder.on_device(), [&](size_t first, const PackedBatch& batch) {
    std::vector<int32_t> rows;
    std::vector<size_t> owners;
    each_end(batch, lengths, first, [&](size_t item, size_t row) {
      rows.push_back(batch.rows[row]);
      owners.push_back(item);
    });
    const at::Tensor found = row_values(decoder, decoder.final_norm(decoder.forward_packed(batch.tokens), rows));
    for (size_t i = 0; i < owners.size(); ++i) scores[owners[i]] = values(found)[i];
  });
  return scores;
}

PreferenceStats preference_stats(std::span<const float> scores) {
  check(scores.size() % 2 == 0, "a reply without its fellow");
  PreferenceStats stats;
  for (size_t i = 0; i < scores.size(); i += 2) {
    const double margin = double{scores[i]} - scores[i + 1];
    stats.loss += pair_loss(margin).loss;
    stats.accuracy += margin > 0 ? 1 : 0;
    stats.margin += margin;
    stats.chosen_score += scores[i], stats.rejected_score += scores[i + 1];
  }
  stats.num_pairs = static_cast<int64_t>(scores.size() / 2);
  const auto pairs = static_cast<double>(std::max<int64_t>(1, stats.num_pairs));
  stats.loss /= pairs, stats.accuracy /= pairs, stats.margin /= pairs;
  stats.chosen_score /= pairs, stats.rejected_score /= pairs;
  return stats;
}

PreferenceTrainer::PreferenceTrainer(Decoder& decoder, Optimizer& optimizer, BatchingOptions options)
    : decoder_(decoder), optimizer_(optimizer), options_(options) {
  options_.unit_samples = 2;  // a pair's two scores meet in its loss
}

PreferenceStats PreferenceTrainer::accumulate(std::span<const TrainingSample> samples, DecoderWeights& gradients,
                                              const OnTokens& on_tokens) const {
  std::vector<const TrainingSample*> all;
  for (const TrainingSample& sample : samples) all.push_back(&sample);
  const std::vector<size_t> lengths = lengths_of(samples);
  std::vector<float> scores(samples.size());
  const double weight = 2.0 / static_cast<double>(samples.size());
  const RowSlopes slopes = [&](size_t first, const PackedBatch& batch, std::span<const float> value,
                               std::span<float> slope) {
    std::vector<std::pair<size_t, size_t>> ends;  // sample, row
    each_end(batch, lengths, first, [&](size_t item, size_t row) {
      scores[item] = value[row];
      ends.emplace_back(item, row);
    });
    for (const auto& [item, row] : ends) {
      const size_t chosen = item - item % 2;
      const double by_margin = weight * pair_loss(double{scores[chosen]} - scores[chosen + 1]).slope;
      slope[row] += static_cast<float>(item == chosen ? by_margin : -by_margin);
    }
  };
  forward_backward(decoder_, all, options_, value_head_pass(decoder_, slopes, gradients), gradients, on_tokens);
  return preference_stats(scores);
}

PreferenceTrainer::Result PreferenceTrainer::update(std::span<const TrainingSample> samples,
                                                    const OnTokens& on_tokens) {
  DecoderWeights gradients = zeros_of_trained(decoder_.weights());
  Result result{accumulate(samples, gradients, on_tokens)};
  const auto step = guarded_step(optimizer_, decoder_.weights(), gradients, result.loss, "optim.lr", options_, samples);
  if (step) result.grad_norm = step->grad_norm, result.lr = step->lr;
  return result;
}

}  // namespace tandem
