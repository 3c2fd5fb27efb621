// The update: mini-batches, micro-batches, forward, loss, backward, optimizer step; and log-probs by the same forward.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "data/trajectory_store.h"
#include "model/decoder.h"
#include "train/loss.h"
#include "train/optimizer.h"
#include "train/packing.h"

namespace tandem {

struct TrainerOptions {
  ClipBounds clip;
  LossAggregation aggregation = LossAggregation::kTokenMean;
  double norm_length = 1;  // divisor of seq-mean-token-sum-norm
  double entropy_coeff = 0;
  bool use_kl_loss = false;
  double kl_loss_coef = 0.001;
  KlType kl_type;
  int64_t mini_batch_samples = 0;  // samples of an optimizer step
  int64_t epochs = 1;
  bool shuffle = false;  // draw new mini-batches in each epoch after the first, by `seed`
  uint64_t seed = 42;
  int64_t max_micro_tokens = 4096;
  int64_t max_micro_samples = 0;         // 0: only tokens count
  int64_t activation_bytes = 512 << 20;  // micro-batches are cut so that all activations fit, and beyond it recompute
  bool may_recompute = true;
};

struct TrainingSample {
  TrajectoryPtr trajectory;
  double advantage = 0;
  std::vector<float> ref_logprobs;  // one a response token; empty without a reference
};

struct UpdateStats {
  double loss = 0, pg_loss = 0, kl_loss = 0, entropy_loss = 0;    // means over mini-batches
  double clip_fraction = 0, clip_fraction_lower = 0, ppo_kl = 0;  // over computed tokens
  double grad_norm = 0, lr = 0;                                   // mean; last
  int64_t num_optimizer_steps = 0, num_tokens = 0, num_computed_tokens = 0, num_skipped_samples = 0;
};

class Trainer {
 public:
  // `decoder` and `optimizer` must outlive it.
  Trainer(Decoder& decoder, Optimizer& optimizer, TrainerOptions options)
      : decoder_(decoder), optimizer_(optimizer), options_(options) {}

  // Samples of one prompt must be neighbours. `on_tokens(n)`: n more response tokens are through, for progress.
  // DataError when the loss or gradient is not finite; the weights are then those of the last good step.
  UpdateStats update(std::span<const TrainingSample> samples, const std::function<void(int64_t)>& on_tokens = {});

  // Gradient of one mini-batch, added into `gradients`.
  UpdateStats accumulate(std::span<const TrainingSample> samples, DecoderWeights& gradients,
                         const std::function<void(int64_t)>& on_tokens = {}) const;

 private:
  bool contributes(const TrainingSample& sample) const;
  void micro_batch(std::span<const TrainingSample* const> samples, std::span<const PackItem> items,
                   const BatchCounts& counts, DecoderWeights& gradients, UpdateStats& stats) const;

  Decoder& decoder_;
  Optimizer& optimizer_;
  TrainerOptions options_;
};

// Log-probs of every item's response tokens by the training forward, at its temperature.
std::vector<std::vector<float>> packed_logprobs(const Decoder& decoder, std::span<const PackItem> items,
                                                std::span<const double> temperatures, int64_t max_micro_tokens);

}  // namespace tandem
