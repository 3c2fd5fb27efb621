#include "app/roofline.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "kernels/kernels.h"

namespace tandem {
namespace {

template <class Fn>
double best_seconds(const at::Tensor& like, Fn run) {
  double best = 1e9;
  for (int i = 0; i < 8; ++i) {
    kernels::synchronize(like);
    const auto start = std::chrono::steady_clock::now();
    run();
    kernels::synchronize(like);
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return best;
}

// Of the linear layers and the head, of which every token sees each.
double multiplied_weights(const ModelConfig& c) {
  const double width = static_cast<double>(c.hidden_size);
  const double attention = width * static_cast<double>(2 * c.q_size() + 2 * c.kv_size());
  const double mlp = 3 * width * static_cast<double>(c.intermediate_size);
  return static_cast<double>(c.num_hidden_layers) * (attention + mlp) + width * static_cast<double>(c.vocab_size);
}

}  // namespace

Ceilings measure_ceilings(const at::Tensor& like) {
  at::Tensor from = at::empty({int64_t{1} << 30}, like.options()), to = at::empty_like(from);
  from.normal_();
  const double copy = best_seconds(from, [&] { to.copy_(from); });
  const int64_t n = 8192;
  at::Tensor a = at::empty({n, n}, like.options()).normal_(), b = at::empty({n, n}, like.options()).normal_(),
             c = at::empty_like(a);
  const double product = best_seconds(a, [&] { at::mm_out(c, a, b); });
  return {static_cast<double>(2 * from.nbytes()) / copy, 2.0 * n * n * n / product};
}

void print(const Ceilings& ceilings) {
  fmt::print(R"({{"name": "ceilings", "copy_tb_s": {:.3f}, "matmul_tflop_s": {:.0f}}})"
             "\n",
             ceilings.bytes_per_second / 1e12, ceilings.flops_per_second / 1e12);
}

double rollout_floor_seconds(const ModelConfig& config, const SampledWork& work, int64_t value_bytes,
                             const Ceilings& ceilings) {
  const double weights = multiplied_weights(config);
  const auto sequences = static_cast<double>(work.prompts * work.samples);
  const auto prompt_tokens = static_cast<double>(work.prompts * work.prompt_tokens);
  const double bytes_per_token = static_cast<double>(2 * config.num_hidden_layers * config.kv_size() * value_bytes);
  const double products = std::max(weights * static_cast<double>(value_bytes) / ceilings.bytes_per_second,
                                   2 * weights * sequences / ceilings.flops_per_second);
  double seconds = 2 * weights * prompt_tokens / ceilings.flops_per_second;
  for (int64_t drawn = 1; drawn < work.new_tokens; ++drawn) {
    const double keys = prompt_tokens + sequences * static_cast<double>(drawn);
    seconds += products + keys * bytes_per_token / ceilings.bytes_per_second;
  }
  return seconds;
}

double training_floor_seconds(const ModelConfig& config, const SampledWork& work, const Ceilings& ceilings) {
  const auto length = static_cast<double>(work.prompt_tokens + work.new_tokens);
  const auto sequences = static_cast<double>(work.prompts * work.samples);
  const double products = 6 * multiplied_weights(config) * length;
  // Two products forward, four backward, of half a square each.
  const double attention = static_cast<double>(config.num_hidden_layers * config.q_size()) * 6 * length * length;
  return sequences * (products + attention) / ceilings.flops_per_second;
}

}  // namespace tandem
