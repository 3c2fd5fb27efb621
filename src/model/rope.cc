#include "model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace tandem {
namespace {

constexpr double kTwoPi = 2.0 * std::numbers::pi;

// Long waves are slowed by `factor`, short ones kept, and the band between is interpolated in turns per context.
double llama3(const RopeConfig& rope, double frequency) {
  const double turns = static_cast<double>(rope.original_max_position_embeddings) * frequency / kTwoPi;
  if (turns < rope.low_freq_factor) return frequency / rope.factor;
  if (turns > rope.high_freq_factor) return frequency;
  const double smooth = (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
  return (1.0 - smooth) * frequency / rope.factor + smooth * frequency;
}

// The pair index, as a real number, that makes `turns` full turns over the original context (YaRN, section 3.2).
double pair_with_turns(const RopeConfig& rope, int64_t head_dim, double turns) {
  const auto context = static_cast<double>(rope.original_max_position_embeddings);
  return static_cast<double>(head_dim) * std::log(context / (turns * kTwoPi)) / (2.0 * std::log(rope.theta));
}

// Pairs up to `low` keep their frequency, from `high` on they are slowed, with a linear ramp between.
void apply_yarn(const RopeConfig& rope, int64_t head_dim, std::vector<double>& frequencies) {
  double low = pair_with_turns(rope, head_dim, rope.beta_fast), high = pair_with_turns(rope, head_dim, rope.beta_slow);
  if (rope.truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(head_dim - 1));
  if (low == high) high += 0.001;  // as the reference code does, to divide by something
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double slowed = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    frequencies[i] = frequencies[i] * (1.0 - slowed) + frequencies[i] / rope.factor * slowed;
  }
}

double yarn_mscale(double factor, double mscale) { return factor <= 1.0 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0; }

}  // namespace

std::vector<double> inverse_frequencies(const RopeConfig& rope, int64_t head_dim) {
  std::vector<double> frequencies(static_cast<size_t>(head_dim / 2));
  for (size_t i = 0; i < frequencies.size(); ++i)
    frequencies[i] = std::pow(rope.theta, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim));
  switch (rope.type) {
    case RopeType::kDefault:
      break;
    case RopeType::kLinear:
      for (double& f : frequencies) f /= rope.factor;
      break;
    case RopeType::kLlama3:
      for (double& f : frequencies) f = llama3(rope, f);
      break;
    case RopeType::kYarn:
      apply_yarn(rope, head_dim, frequencies);
      break;
  }
  return frequencies;
}

std::vector<double> inverse_frequencies(const ModelConfig& config) {
  return inverse_frequencies(config.rope, config.head_dim);
}

double rope_attention_factor(const RopeConfig& rope) {
  if (rope.type != RopeType::kYarn) return 1.0;
  if (rope.attention_factor) return *rope.attention_factor;
  if (rope.mscale.value_or(0.0) != 0.0 && rope.mscale_all_dim.value_or(0.0) != 0.0)
    return yarn_mscale(rope.factor, *rope.mscale) / yarn_mscale(rope.factor, *rope.mscale_all_dim);
  return yarn_mscale(rope.factor, 1.0);
}

}  // namespace tandem
