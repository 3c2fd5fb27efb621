#include "train/trainer.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "base/rng.h"
#include "train/head.h"

namespace tandem {
namespace {

PackItem item_of(const TrajectoryPtr& trajectory) { return {trajectory->prompt->token_ids, trajectory->response_ids}; }

BatchCounts count(std::span<const TrainingSample> samples, double norm_length) {
  BatchCounts counts{0, static_cast<int64_t>(samples.size()), norm_length};
  for (const auto& sample : samples) counts.num_tokens += static_cast<int64_t>(sample.trajectory->response_ids.size());
  return counts;
}

// The order in which an epoch visits whole groups: samples of one prompt stay together.
std::vector<TrainingSample> shuffled(std::span<const TrainingSample> samples, uint64_t seed, uint64_t stream) {
  std::vector<std::pair<size_t, size_t>> groups;
  for (size_t i = 0; i < samples.size(); ++i) {
    const bool same = i > 0 && samples[i].trajectory->prompt == samples[i - 1].trajectory->prompt;
    if (same) {
      groups.back().second = i + 1;
    } else {
      groups.emplace_back(i, i + 1);
    }
  }
  Philox random(seed, stream);
  for (size_t i = groups.size(); i > 1; --i) std::swap(groups[i - 1], groups[random.below(i)]);
  std::vector<TrainingSample> out;
  for (const auto& [first, last] : groups) out.insert(out.end(), samples.begin() + first, samples.begin() + last);
  return out;
}

void add_weighted(UpdateStats& total, const UpdateStats& part) {
  total.loss += part.loss, total.pg_loss += part.pg_loss, total.kl_loss += part.kl_loss;
  total.entropy_loss += part.entropy_loss;
  total.clip_fraction += part.clip_fraction, total.clip_fraction_lower += part.clip_fraction_lower;
  total.ppo_kl += part.ppo_kl, total.grad_norm += part.grad_norm, total.lr = part.lr;
  total.num_optimizer_steps += part.num_optimizer_steps, total.num_tokens += part.num_tokens;
  total.num_computed_tokens += part.num_computed_tokens, total.num_skipped_samples += part.num_skipped_samples;
}

}  // namespace

UpdateStats Trainer::update(std::span<const TrainingSample> samples, const std::function<void(int64_t)>& on_tokens) {
  UpdateStats total;
  DecoderWeights gradients = zero_weights(decoder_.config(), decoder_.weights().embed_VE.device());
  bool clean = true;
  for (int64_t epoch = 0; epoch < options_.epochs; ++epoch) {
    const bool reorder = options_.shuffle && epoch > 0;
    const auto stream = static_cast<uint64_t>(optimizer_.num_steps());
    const std::vector<TrainingSample> order = reorder ? shuffled(samples, options_.seed, stream)
                                                      : std::vector<TrainingSample>(samples.begin(), samples.end());
    for (size_t begin = 0; begin < order.size(); begin += static_cast<size_t>(options_.mini_batch_samples)) {
      const size_t size = std::min<size_t>(options_.mini_batch_samples, order.size() - begin);
      if (!clean)
        for (auto& parameter : parameters(gradients)) parameter.tensor.zero_();
      clean = false;
      UpdateStats part = accumulate(std::span(order).subspan(begin, size), gradients, on_tokens);
      const auto [grad_norm, lr] = optimizer_.step(decoder_.weights(), gradients);
      if (!std::isfinite(grad_norm) || !std::isfinite(part.loss))
        throw DataError("the loss is " + std::to_string(part.loss) + " and the gradient's norm " +
                        std::to_string(grad_norm) + " at optimizer step " + std::to_string(optimizer_.num_steps()) +
                        "; the weights are unchanged: lower actor.optim.lr, or look at the rewards");
      part.grad_norm = grad_norm, part.lr = lr, part.num_optimizer_steps = 1;
      add_weighted(total, part);
    }
  }
  const auto steps = static_cast<double>(std::max<int64_t>(1, total.num_optimizer_steps));
  total.loss /= steps, total.pg_loss /= steps, total.kl_loss /= steps, total.entropy_loss /= steps,
      total.grad_norm /= steps;
  const auto computed = static_cast<double>(std::max<int64_t>(1, total.num_computed_tokens));
  total.clip_fraction /= computed, total.clip_fraction_lower /= computed, total.ppo_kl /= computed;
  return total;
}

bool Trainer::contributes(const TrainingSample& sample) const {
  return sample.advantage != 0 || (options_.use_kl_loss && options_.kl_loss_coef != 0) || options_.entropy_coeff != 0;
}

UpdateStats Trainer::accumulate(std::span<const TrainingSample> samples, DecoderWeights& gradients,
                                const std::function<void(int64_t)>& on_tokens) const {
  const BatchCounts counts = count(samples, options_.norm_length);
  UpdateStats stats;
  stats.num_tokens = counts.num_tokens;
  std::vector<const TrainingSample*> chosen;
  std::vector<PackItem> items;
  for (const TrainingSample& sample : samples) {
    if (!contributes(sample)) {
      ++stats.num_skipped_samples;
      if (on_tokens) on_tokens(static_cast<int64_t>(sample.trajectory->response_ids.size()));
      continue;
    }
    chosen.push_back(&sample);
    items.push_back(item_of(sample.trajectory));
  }
  const int64_t per_token = 4 * decoder_.config().num_hidden_layers * decoder_.activation_floats_per_token(true);
  const int64_t max_tokens =
      std::min(options_.max_micro_tokens, std::max<int64_t>(64, options_.activation_bytes / per_token));
  size_t begin = 0;
  for (const size_t end : split_micro_batches(items, max_tokens, options_.max_micro_samples)) {
    const int64_t before = stats.num_computed_tokens;
    micro_batch(std::span(chosen).subspan(begin, end - begin), std::span(items).subspan(begin, end - begin), counts,
                gradients, stats);
    if (on_tokens) on_tokens(stats.num_computed_tokens - before);
    begin = end;
  }
  return stats;
}

void Trainer::micro_batch(std::span<const TrainingSample* const> samples, std::span<const PackItem> items,
                          const BatchCounts& counts, DecoderWeights& gradients, UpdateStats& stats) const {
  const PackedBatch batch = pack(items, decoder_.on_device());
  std::vector<double> temperatures;
  for (const TrainingSample* sample : samples) temperatures.push_back(sample->trajectory->temperature);
  const int64_t bytes =
      4 * batch.tokens.num_tokens() * decoder_.config().num_hidden_layers * decoder_.activation_floats_per_token(true);
  const bool keep_all = !options_.may_recompute || bytes <= options_.activation_bytes;
  Activations activations = decoder_.forward_for_training(batch.tokens, keep_all);
  const auto loss = [&](size_t t, const TargetStats& target) {
    const PackTarget& where = batch.targets[t];
    const TrainingSample& sample = *samples[where.item];
    const double weight =
        token_weight(options_.aggregation, counts, static_cast<int64_t>(sample.trajectory->response_ids.size()));
    const PolicyLoss policy = clipped_policy_loss(target.logprob, sample.trajectory->rollout_logprobs[where.position],
                                                  sample.advantage, options_.clip);
    TargetSlopes slopes{weight * policy.slope, -weight * options_.entropy_coeff};
    double token_loss = policy.loss - options_.entropy_coeff * target.entropy;
    if (options_.use_kl_loss) {
      const ValueAndSlope kl = token_kl(options_.kl_type, target.logprob, sample.ref_logprobs[where.position]);
      slopes.logprob += weight * options_.kl_loss_coef * kl.slope;
      token_loss += options_.kl_loss_coef * kl.value;
      stats.kl_loss += weight * kl.value;
    }
    stats.loss += weight * token_loss;
    stats.pg_loss += weight * policy.loss;
    stats.entropy_loss += weight * target.entropy;
    stats.ppo_kl -= policy.log_ratio;
    stats.clip_fraction += policy.clipped ? 1 : 0;
    stats.clip_fraction_lower += policy.clipped_lower ? 1 : 0;
    ++stats.num_computed_tokens;
    return slopes;
  };
  at::Tensor dx = head_forward_backward(decoder_, activations.x_TE, batch, temperatures, options_.entropy_coeff != 0,
                                        loss, gradients);
  decoder_.backward(batch.tokens, std::move(activations), dx, gradients);
}

std::vector<std::vector<float>> packed_logprobs(const Decoder& decoder, std::span<const PackItem> items,
                                                std::span<const double> temperatures, int64_t max_micro_tokens) {
  std::vector<std::vector<float>> all;
  for (const PackItem& item : items) all.emplace_back(item.response.size());
  size_t begin = 0;
  for (const size_t end : split_micro_batches(items, max_micro_tokens, 0)) {
    const PackedBatch batch = pack(items.subspan(begin, end - begin), decoder.on_device());
    const at::Tensor x = decoder.forward_packed(batch.tokens);
    const auto stats = head_forward(decoder, x, batch, temperatures.subspan(begin, end - begin), false);
    for (size_t t = 0; t < stats.size(); ++t)
      all[begin + batch.targets[t].item][batch.targets[t].position] = stats[t].logprob;
    begin = end;
  }
  return all;
}

}  // namespace tandem
