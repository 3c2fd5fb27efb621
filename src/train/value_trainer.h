// The critic: a decoder with a value head, its values and its update.
#pragma once

#include <span>
#include <vector>

#include "train/batching.h"
#include "train/loss.h"

namespace tandem {

struct ValueTrainerOptions : BatchingOptions {
  double clip_range = 0.5;  // a new value is kept within this of the old one, where that makes the loss larger
  LossAggregation aggregation = LossAggregation::kTokenMean;
  double norm_length = 1;  // divisor of seq-mean-token-sum-norm
};

// max((V − R)², (clip(V, V_old ± range) − R)²) / 2 (Schulman et al. 2016; the clip as in verl).
struct ValueLoss {
  double loss = 0;
  double slope = 0;  // d loss / d value
  bool clipped = false;
};
ValueLoss clipped_value_loss(double value, double old_value, double target, double range);

// The value of the state before each response token.
std::vector<std::vector<float>> packed_values(const Decoder& decoder, std::span<const PackItem> items,
                                              int64_t max_micro_tokens);

struct ValueStats {
  double vf_loss = 0;                        // mean over mini-batches
  double clip_fraction = 0, mean_value = 0;  // over counted tokens
  double grad_norm = 0, lr = 0;              // mean; last
  int64_t num_optimizer_steps = 0, num_tokens = 0;
  SequenceWork work;
  int64_t num_skipped_updates = 0;  // not finite, and left out of everything above
};

class ValueTrainer {
 public:
  // `decoder` (with a value head) and `optimizer` must outlive it.
  ValueTrainer(Decoder& decoder, Optimizer& optimizer, ValueTrainerOptions options)
      : decoder_(decoder), optimizer_(optimizer), options_(std::move(options)) {}

  // Samples need old_values and returns; those of one prompt must be neighbours. DataError as Trainer::update().
  ValueStats update(std::span<const TrainingSample> samples, const OnTokens& on_tokens = {});

  // Gradient of one mini-batch, added into `gradients`; sums in place of means.
  ValueStats accumulate(std::span<const TrainingSample> samples, DecoderWeights& gradients,
                        const OnTokens& on_tokens = {}) const;

 private:
  Decoder& decoder_;
  Optimizer& optimizer_;
  ValueTrainerOptions options_;
};

}  // namespace tandem
