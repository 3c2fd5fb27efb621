// A reward model's training: a decoder with a value head, whose value after a reply's last token is the reply's score,
// learns that of two replies to a prompt one is better.
#pragma once

#include <span>
#include <vector>

#include "train/batching.h"

namespace tandem {

// −log σ(chosen − rejected) (Bradley & Terry 1952; Ouyang et al. 2022, arXiv:2203.02155, eq. 1), finite for every
// margin.
struct PairLoss {
  double loss = 0;
  double slope = 0;  // d loss / d margin
};
PairLoss pair_loss(double margin);

// A reply as a sample whose last token is an input too: packing leaves out a response's last token, so it gets one more
// that nobody reads.
TrainingSample scored_sample(const Trajectory& reply);

// The score of each of them.
std::vector<float> packed_scores(const Decoder& decoder, std::span<const TrainingSample> samples,
                                 int64_t max_micro_tokens);

struct PreferenceStats {
  double loss = 0, accuracy = 0, margin = 0;  // means over pairs; a tie counts as wrong
  double chosen_score = 0, rejected_score = 0;
  int64_t num_pairs = 0;
};
PreferenceStats preference_stats(std::span<const float> scores);  // chosen, rejected, chosen, rejected, ...

class PreferenceTrainer {
 public:
  // `decoder` (with a value head) and `optimizer` must outlive it. mini_batch_samples counts replies.
  PreferenceTrainer(Decoder& decoder, Optimizer& optimizer, BatchingOptions options);

  // One optimizer step on scored_sample()s: chosen, rejected, chosen, rejected, ... DataError as Trainer::update().
  struct Result : PreferenceStats {
    double grad_norm = 0, lr = 0;
  };
  Result update(std::span<const TrainingSample> samples, const OnTokens& on_tokens = {});

  // The gradient of the pairs' mean loss, added into `gradients`.
  PreferenceStats accumulate(std::span<const TrainingSample> samples, DecoderWeights& gradients,
                             const OnTokens& on_tokens = {}) const;

 private:
  Decoder& decoder_;
  Optimizer& optimizer_;
  BatchingOptions options_;
};

}  // namespace tandem
