#include "train/batching.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/rng.h"
#include "model/sequence_split.h"
#include "model/tensor_split.h"
#include "train/fsdp.h"
#include "train/pipeline.h"

namespace tandem {

SequenceWork work_of_samples(SampleList samples) {
  SequenceWork work;
  const Prompt* last = nullptr;
  for (const TrainingSample* sample : samples) {
    const Prompt* prompt = sample->trajectory->prompt.get();
    work += work_of_sample(static_cast<double>(prompt->token_ids.size()), static_cast<double>(num_tokens(*sample)),
                           prompt == std::exchange(last, prompt));
  }
  return work;
}

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

int64_t activation_bytes_per_token(const Decoder& decoder) {
  const int ranks = decoder.sequences() != nullptr ? decoder.sequences()->size() : 1;
  return decoder.config().num_hidden_layers * (decoder.value_bytes() * decoder.activations_per_token() / ranks);
}

void keep_own_targets(PackedBatch& batch, const Decoder& decoder) {
  if (decoder.sequences() == nullptr) return;
  const Range rows = decoder.training_rows(batch.tokens);
  keep_targets(batch, rows.begin, rows.end);
}

size_t kept_blocks(const Decoder& decoder, int64_t num_tokens, const BatchingOptions& options) {
  const auto blocks = static_cast<int64_t>(decoder.num_blocks());
  if (!options.may_recompute) return decoder.num_blocks();
  // Every block keeps its input.
  const int64_t ranks = decoder.sequences() != nullptr ? decoder.sequences()->size() : 1;
  const int64_t input = decoder.value_bytes() * decoder.config().hidden_size * num_tokens / ranks;
  const int64_t rest = decoder.value_bytes() * decoder.activations_per_token() * num_tokens / ranks - input;
  return static_cast<size_t>(std::clamp<int64_t>((options.activation_bytes - blocks * input) / rest, 0, blocks));
}

namespace {

// Tokens of samples that share a prompt, which is computed once for all that are packed together.
constexpr int64_t kSharedTokens = 320;

std::vector<PackItem> pack_items(SampleList samples) {
  std::vector<PackItem> items;
  for (const TrainingSample* sample : samples) items.push_back(pack_item(*sample));
  return items;
}

}  // namespace

std::vector<size_t> micro_batch_ends(int64_t bytes_per_token, SampleList samples, const BatchingOptions& options) {
  const int64_t max_tokens =
      std::min(options.max_micro_tokens, std::max<int64_t>(64, options.activation_bytes / bytes_per_token));
  return split_micro_batches(pack_items(samples), max_tokens, options.max_micro_samples, options.unit_samples,
                             options.may_recompute ? std::min(options.max_micro_tokens, kSharedTokens) : 0);
}

void forward_backward(const Decoder& decoder, SampleList samples, const BatchingOptions& options, const HeadPass& head,
                      DecoderWeights& gradients, const OnTokens& on_tokens, FullyShardedModel* sharded) {
  const std::vector<PackItem> items = pack_items(samples);
  const int64_t per_token = activation_bytes_per_token(decoder);
  size_t begin = 0;
  for (const size_t end : micro_batch_ends(per_token, samples, options)) {
    PackedBatch batch = pack(std::span(items).subspan(begin, end - begin), decoder.on_device());
    Activations activations =
        decoder.forward_keeping(batch.tokens, kept_blocks(decoder, batch.tokens.num_tokens(), options));
    keep_own_targets(batch, decoder);
    at::Tensor dx = head(begin, samples.subspan(begin, end - begin), batch, activations.x_TE);
    decoder.backward(batch.tokens, std::move(activations), dx, gradients);
    if (sharded != nullptr) sharded->finish_micro_batch();
    int64_t tokens = 0;
    for (size_t i = begin; i < end; ++i) tokens += static_cast<int64_t>(num_tokens(*samples[i]));
    if (on_tokens) on_tokens(tokens);
    begin = end;
  }
}

std::optional<Optimizer::StepResult> guarded_step(Optimizer& optimizer, DecoderWeights& weights,
                                                  const DecoderWeights& gradients, double loss, std::string_view lr_key,
                                                  const BatchingOptions& options,
                                                  std::span<const TrainingSample> samples, bool unchanged,
                                                  const UpdateRanks& ranks, TensorSplit* split) {
  const auto total = [&](std::vector<double> squares) {
    if (ranks.pipeline != nullptr) squares = ranks.pipeline->of_all_stages(squares);
    return split != nullptr ? split->total(squares) : std::accumulate(squares.begin(), squares.end(), 0.0);
  };
  const auto make_step = [&] {
    if (FullyShardedModel* sharded = ranks.sharded) {
      const double squares = total(sharded->gradient_squares());
      const auto result = optimizer.step(sharded->shards(), sharded->gradient_shards(), squares);
      sharded->weights_changed();
      return result;
    }
    if (split == nullptr && ranks.pipeline == nullptr) return optimizer.step(weights, gradients);
    std::vector<double> squares;
    for (const NamedTensor& gradient : parameters(gradients))
      squares.push_back(kernels::sum_of_squares({&gradient.tensor, 1}));
    return optimizer.step(weights, gradients, total(squares));
  };
  const Optimizer::StepResult step = std::isfinite(loss) ? make_step() : Optimizer::StepResult{std::nan(""), 0};
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
