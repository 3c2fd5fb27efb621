#include "train/value_trainer.h"

#include <algorithm>

#include "base/error.h"
#include "train/value_head.h"

namespace tandem {
namespace {

class MiniBatchValueLoss {
 public:
  MiniBatchValueLoss(const ValueTrainerOptions& options, std::span<const TrainingSample* const> samples)
      : options_(options), samples_(samples) {
    BatchCounts counts{0, 0, options.norm_length};
    for (const TrainingSample* sample : samples) {
      masks_.push_back(token_mask(*sample->trajectory, sample->mask));
      const int64_t length = trained_length(masks_.back());
      counts.num_tokens += length, counts.num_sequences += length > 0 ? 1 : 0;
      check(sample->old_values.size() == num_tokens(*sample) && sample->returns.size() == num_tokens(*sample),
            "a sample has no values or returns to train on");
    }
    for (const auto& mask : masks_) weights_.push_back(token_weight(options.aggregation, counts, trained_length(mask)));
  }

  double token(size_t i, size_t t, double value) {  // d loss / d value
    if (masks_[i][t] == 0) return 0;
    const ValueLoss loss =
        clipped_value_loss(value, samples_[i]->old_values[t], samples_[i]->returns[t], options_.clip_range);
    stats.vf_loss += weights_[i] * loss.loss;
    stats.clip_fraction += loss.clipped ? 1 : 0;
    stats.mean_value += value;
    ++stats.num_tokens;
    return weights_[i] * loss.slope;
  }

  ValueStats stats;

 private:
  const ValueTrainerOptions& options_;
  std::span<const TrainingSample* const> samples_;
  std::vector<std::vector<uint8_t>> masks_;
  std::vector<double> weights_;
};

}  // namespace

ValueLoss clipped_value_loss(double value, double old_value, double target, double range) {
  const double kept = std::clamp(value, old_value - range, old_value + range);
  const double plain = 0.5 * (value - target) * (value - target), bounded = 0.5 * (kept - target) * (kept - target);
  if (bounded > plain) return {bounded, 0, true};
  return {plain, value - target, false};
}

std::vector<std::vector<float>> packed_values(const Decoder& decoder, std::span<const PackItem> items,
                                              int64_t max_micro_tokens) {
  auto all = values_of_tokens(items);
  for_packed(items, max_micro_tokens, decoder.on_device(), [&](size_t first, const PackedBatch& batch) {
    const at::Tensor values = row_values(decoder, decoder.final_norm(decoder.forward_packed(batch.tokens), batch.rows));
    const auto row = tandem::values(values);
    for (const PackTarget& target : batch.targets) all[first + target.item][target.position] = row[target.row];
  });
  return all;
}

ValueStats ValueTrainer::accumulate(std::span<const TrainingSample> samples, DecoderWeights& gradients,
                                    const OnTokens& on_tokens) const {
  std::vector<const TrainingSample*> all;
  for (const TrainingSample& sample : samples) all.push_back(&sample);
  MiniBatchValueLoss loss(options_, all);
  const RowSlopes slopes = [&](size_t first, const PackedBatch& batch, std::span<const float> value,
                               std::span<float> slope) {
    for (const PackTarget& target : batch.targets)  // the samples of a prompt share its last row
      slope[target.row] += static_cast<float>(loss.token(first + target.item, target.position, value[target.row]));
  };
  forward_backward(decoder_, all, options_, value_head_pass(decoder_, slopes, gradients), gradients, on_tokens);
  loss.stats.work = work_of_samples(all);
  return loss.stats;
}

ValueStats ValueTrainer::update(std::span<const TrainingSample> samples, const OnTokens& on_tokens) {
  ValueStats total;
  DecoderWeights gradients = zeros_of_trained(decoder_.weights());
  for (int64_t epoch = 0; epoch < options_.epochs; ++epoch) {
    const auto order = epoch_samples(samples, options_, epoch, static_cast<uint64_t>(optimizer_.num_steps()));
    for (const auto& mini_batch : mini_batches(order, options_.mini_batch_samples)) {
      if (total.num_optimizer_steps + total.num_skipped_updates > 0) set_to_zero(gradients);
      const ValueStats part = accumulate(mini_batch, gradients, on_tokens);
      const auto step = guarded_step(optimizer_, decoder_.weights(), gradients, part.vf_loss, "critic.optim.lr",
                                     options_, mini_batch);
      if (!step) {
        ++total.num_skipped_updates;
        continue;
      }
      total.vf_loss += part.vf_loss, total.clip_fraction += part.clip_fraction, total.mean_value += part.mean_value;
      total.grad_norm += step->grad_norm, total.lr = step->lr;
      total.num_tokens += part.num_tokens, ++total.num_optimizer_steps, total.work += part.work;
    }
  }
  const auto steps = static_cast<double>(std::max<int64_t>(1, total.num_optimizer_steps));
  const auto tokens = static_cast<double>(std::max<int64_t>(1, total.num_tokens));
  total.vf_loss /= steps, total.grad_norm /= steps;
  total.clip_fraction /= tokens, total.mean_value /= tokens;
  return total;
}

}  // namespace tandem
