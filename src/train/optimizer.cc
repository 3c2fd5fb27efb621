#include "train/optimizer.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"
#include "kernels/kernels.h"

namespace tandem {

double learning_rate(const OptimizerOptions& o, int64_t step) {
  if (step < o.warmup_steps) return o.lr * static_cast<double>(step) / static_cast<double>(o.warmup_steps);
  if (o.schedule == LrSchedule::kConstant) return o.lr;
  const auto span = static_cast<double>(std::max<int64_t>(1, o.total_steps - o.warmup_steps));
  const double progress = static_cast<double>(step - o.warmup_steps) / span;
  const double wave = 0.5 * (1 + std::cos(2 * std::numbers::pi * o.num_cycles * progress));
  return o.lr * std::max(0.0, o.min_lr_ratio + (1 - o.min_lr_ratio) * wave);
}

Optimizer::Optimizer(const ModelConfig& config, OptimizerOptions options)
    : options_(options), moment1_(zero_weights(config)), moment2_(zero_weights(config)) {}

Optimizer::StepResult Optimizer::step(DecoderWeights& weights, const DecoderWeights& gradients) {
  const auto w = parameters(weights), g = parameters(gradients), m = parameters(moment1_), v = parameters(moment2_);
  double squares = 0;
  for (const auto& gradient : g) squares += kernels::sum_of_squares(gradient.tensor);
  StepResult result{std::sqrt(squares), learning_rate(options_, num_steps_)};
  if (!std::isfinite(result.grad_norm)) return result;
  const double scale = options_.clip_grad > 0 ? std::min(1.0, options_.clip_grad / (result.grad_norm + 1e-6)) : 1.0;
  const kernels::AdamW settings{result.lr,    options_.beta1, options_.beta2, options_.eps, options_.weight_decay,
                                ++num_steps_, scale};
  for (size_t i = 0; i < w.size(); ++i) {
    at::Tensor weight = w[i].tensor, moment1 = m[i].tensor, moment2 = v[i].tensor;
    kernels::adamw(settings, g[i].tensor, weight, moment1, moment2);
  }
  return result;
}

}  // namespace tandem
