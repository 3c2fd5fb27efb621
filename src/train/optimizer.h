// AdamW over what is trained of a decoder, with fp32 weights (or the fp32 masters of others, which are then rounded
// anew), clipping by the global norm, and the learning rate's course. State can be saved and restored exactly.
#pragma once

#include <cstdint>

#include "model/decoder_weights.h"

namespace tandem {

enum class LrSchedule { kConstant, kCosine };

struct OptimizerOptions {
  double lr = 1e-6, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0.01;
  double clip_grad = 1.0;  // 0: none
  LrSchedule schedule = LrSchedule::kConstant;
  int64_t warmup_steps = 0;
  int64_t total_steps = 1;  // optimizer steps of the run; the cosine ends there
  double min_lr_ratio = 0, num_cycles = 0.5;
};

// The rate of optimizer step `step` (0-based): linear from 0 over the warm-up, then constant or, as in verl,
// lr · (min + (1 − min) · (1 + cos(2π · cycles · progress)) / 2).
double learning_rate(const OptimizerOptions& options, int64_t step);

class Optimizer {
 public:
  // State lies where `weights` do.
  Optimizer(const DecoderWeights& weights, OptimizerOptions options);

  struct StepResult {
    double grad_norm = 0;  // before clipping
    double lr = 0;
  };
  // Updates the weights. A gradient that is not finite changes nothing and is reported by its norm.
  StepResult step(DecoderWeights& weights, const DecoderWeights& gradients);

  int64_t num_steps() const { return num_steps_; }  // updates made so far
  const OptimizerOptions& options() const { return options_; }
  // For checkpoints: the moments share the weights' names.
  DecoderWeights& first_moment() { return moment1_; }
  DecoderWeights& second_moment() { return moment2_; }
  void set_num_steps(int64_t steps) { num_steps_ = steps; }

 private:
  OptimizerOptions options_;
  DecoderWeights moment1_, moment2_;
  int64_t num_steps_ = 0;
};

}  // namespace tandem
