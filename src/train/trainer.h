// The policy's update: mini-batches, micro-batches, forward, loss, backward, optimizer step; and log-probs by the same
// forward.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "train/batching.h"
#include "train/mini_batch_loss.h"

namespace tandem {

struct TrainerOptions : LossOptions, BatchingOptions {
  // The version of the decoder's weights before the update: samples that were drawn by it have, bit for bit, the
  // log-probs it would compute for them, until the first optimizer step. Nothing: unknown.
  std::optional<uint64_t> weights_version;
  std::string_view lr_key = "actor_rollout_ref.actor.optim.lr";  // for errors
};

// Means over mini-batches; the clip fractions over counted tokens, those without advantage as not clipped; ppo_kl over
// the computed ones.
struct UpdateStats : LossSums {
  double grad_norm = 0, lr = 0;  // mean; last
  int64_t num_optimizer_steps = 0, num_tokens = 0, num_skipped_samples = 0;
  double imbalance = 0;             // of the ranks' work: mean of heaviest over mean, minus 1
  SequenceWork work;                // of all ranks
  int64_t num_skipped_updates = 0;  // not finite, and left out of everything above
};

class Trainer {
 public:
  // All must outlive it. With `ranks`, every rank makes the same calls with all samples; each computes its share.
  Trainer(Decoder& decoder, Optimizer& optimizer, TrainerOptions options, UpdateRanks ranks = {})
      : decoder_(decoder), optimizer_(optimizer), options_(std::move(options)), ranks_(ranks) {}

  // Samples of one prompt must be neighbours. DataError when the loss or gradient is not finite; the weights are then
  // those of the last good step.
  UpdateStats update(std::span<const TrainingSample> samples, const OnTokens& on_tokens = {});

  // Gradient of one mini-batch, added into `gradients`. `unchanged`: no optimizer step since weights_version.
  UpdateStats accumulate(std::span<const TrainingSample> samples, DecoderWeights& gradients,
                         const OnTokens& on_tokens = {}, bool unchanged = false) const;

 private:
  void finish(SampleList mine, size_t rounds, DecoderWeights& gradients, LossSums& sums) const;
  int64_t bytes_per_token() const;  // of activations
  void provide_logprobs(std::span<const TrainingSample> samples, bool unchanged, MiniBatchLoss& loss) const;

  Decoder& decoder_;
  Optimizer& optimizer_;
  TrainerOptions options_;
  UpdateRanks ranks_;
};

// Log-probs of every item's response tokens by the training forward, at its temperature.
std::vector<std::vector<float>> packed_logprobs(const Decoder& decoder, std::span<const PackItem> items,
                                                std::span<const double> temperatures, int64_t max_micro_tokens);

}  // namespace tandem
