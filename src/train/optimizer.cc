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

Optimizer::Optimizer(const DecoderWeights& weights, OptimizerOptions options)
    : options_(options), moment1_(zeros_of_trained(weights)), moment2_(zeros_of_trained(weights)) {}

Optimizer::StepResult Optimizer::step(DecoderWeights& weights, const DecoderWeights& gradients) {
  const auto compute = parameters(trained(weights)), w = parameters(trained(masters(weights))),
             g = parameters(gradients), m = parameters(moment1_), v = parameters(moment2_);
  std::vector<at::Tensor> all;
  for (const auto& gradient : g) all.push_back(gradient.tensor);
  const double squares = kernels::sum_of_squares(all);
  StepResult result{std::sqrt(squares), learning_rate(options_, num_steps_)};
  if (!std::isfinite(result.grad_norm)) return result;
  const double scale = options_.clip_grad > 0 ? std::min(1.0, options_.clip_grad / (result.grad_norm + 1e-6)) : 1.0;
  const kernels::AdamW settings{result.lr,    options_.beta1, options_.beta2, options_.eps, options_.weight_decay,
                                ++num_steps_, scale};
  std::vector<kernels::AdamWTensors> tensors;
  for (size_t i = 0; i < w.size(); ++i) {
    const bool own_master = w[i].tensor.is_same(compute[i].tensor);
    tensors.push_back(
        {g[i].tensor, w[i].tensor, m[i].tensor, v[i].tensor, own_master ? at::Tensor() : compute[i].tensor});
  }
  kernels::adamw(settings, tensors);
  return result;
}

}  // namespace tandem
