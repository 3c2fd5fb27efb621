#include "train/batching.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/rng.h"

namespace tandem {

std::vector<TrainingSample> epoch_samples(std::span<const TrainingSample> samples, const BatchingOptions& options,
                                          int64_t epoch, uint64_t stream) {
  if (!options.shuffle || epoch == 0) return {samples.begin(), samples.end()};
  std::vector<std::pair<size_t, size_t>> groups;
  for (size_t i = 0; i < samples.size(); ++i) {
    const bool same = i > 0 && samples[i].trajectory->prompt == samples[i - 1].trajectory->prompt;
    if (same) {
      groups.back().second = i + 1;
    } else {
      groups.emplace_back(i, i + 1);
    }
  }
  Philox random(options.seed, stream);
  for (size_t i = groups.size(); i > 1; --i) std::swap(groups[i - 1], groups[random.below(i)]);
  std::vector<TrainingSample> out;
  for (const auto& [first, last] : groups) out.insert(out.end(), samples.begin() + first, samples.begin() + last);
  return out;
}

std::vector<std::span<const TrainingSample>> mini_batches(std::span<const TrainingSample> samples, int64_t size) {
  std::vector<std::span<const TrainingSample>> parts;
  for (size_t begin = 0; begin < samples.size(); begin += static_cast<size_t>(size))
    parts.push_back(samples.subspan(begin, std::min<size_t>(size, samples.size() - begin)));
  return parts;
}

PackItem pack_item(const TrainingSample& sample) {
  return {sample.trajectory->prompt->token_ids, sample.trajectory->response_ids};
}

std::vector<double> temperatures_of(SampleList samples) {
  std::vector<double> temperatures;
  for (const TrainingSample* sample : samples) temperatures.push_back(sample->trajectory->temperature);
  return temperatures;
}

void forward_backward(const Decoder& decoder, SampleList samples, const BatchingOptions& options, const HeadPass& head,
                      DecoderWeights& gradients, const OnTokens& on_tokens) {
  std::vector<PackItem> items;
  for (const TrainingSample* sample : samples) items.push_back(pack_item(*sample));
  const int64_t per_token =
      decoder.value_bytes() * decoder.config().num_hidden_layers * decoder.activations_per_token();
  const int64_t max_tokens =
      std::min(options.max_micro_tokens, std::max<int64_t>(64, options.activation_bytes / per_token));
  size_t begin = 0;
  for (const size_t end : split_micro_batches(items, max_tokens, options.max_micro_samples, options.unit_samples)) {
    const PackedBatch batch = pack(std::span(items).subspan(begin, end - begin), decoder.on_device());
    const bool fits = batch.tokens.num_tokens() * per_token <= options.activation_bytes;
    Activations activations = decoder.forward_for_training(batch.tokens, !options.may_recompute || fits);
    at::Tensor dx = head(begin, samples.subspan(begin, end - begin), batch, activations.x_TE);
    decoder.backward(batch.tokens, std::move(activations), dx, gradients);
    int64_t tokens = 0;
    for (size_t i = begin; i < end; ++i) tokens += static_cast<int64_t>(num_tokens(*samples[i]));
    if (on_tokens) on_tokens(tokens);
    begin = end;
  }
}

std::optional<Optimizer::StepResult> guarded_step(Optimizer& optimizer, DecoderWeights& weights,
                                                  const DecoderWeights& gradients, double loss, std::string_view lr_key,
                                                  const BatchingOptions& options,
                                                  std::span<const TrainingSample> samples, bool unchanged) {
  const Optimizer::StepResult step =
      std::isfinite(loss) ? optimizer.step(weights, gradients) : Optimizer::StepResult{std::nan(""), 0};
  if (std::isfinite(step.grad_norm)) return step;
  if (options.on_nonfinite && options.on_nonfinite({samples, loss, step.grad_norm, optimizer.num_steps(), unchanged}))
    return std::nullopt;
  throw DataError(
      fmt::format("the loss is {} and the gradient's norm {} at optimizer step {}; the weights are unchanged: lower "
                  "{}, or look at the data and its rewards",
                  loss, step.grad_norm, optimizer.num_steps(), lr_key));
}

void set_to_zero(DecoderWeights& gradients) {
  for (auto& parameter : parameters(gradients)) parameter.tensor.zero_();
}

}  // namespace tandem
