#include "app/roofline.h"

#include <algorithm>

namespace tandem {
namespace {

// Of the linear layers and the head, of which every token sees each.
double multiplied_weights(const ModelConfig& c) {
  const double width = static_cast<double>(c.hidden_size);
  const double attention = width * static_cast<double>(2 * c.q_size() + 2 * c.kv_size());
  const double mlp = 3 * width * static_cast<double>(c.intermediate_size);
  return static_cast<double>(c.num_hidden_layers) * (attention + mlp) + width * static_cast<double>(c.vocab_size);
}

}  // namespace

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
