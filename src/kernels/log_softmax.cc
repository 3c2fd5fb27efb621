// Log-probabilities of a row of logits. Sums run over blocks of 1,024 ids in fp32 lanes, blocks add up in fp64.
#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/kernels.h"
#include "kernels/simd.h"

namespace tandem::kernels {
namespace {

using simd::F8;
constexpr int64_t kSumBlock = 1024;
constexpr float kLowest = -3.0e38f;

float row_max(std::span<const float> logits, float scale) {
  F8 top = simd::splat(kLowest);
  const F8 s = simd::splat(scale);
  simd::for_vectors(static_cast<int64_t>(logits.size()), [&](int64_t i, int64_t n) {
    top = simd::max(top, simd::mul(simd::load_n(logits.data() + i, n, kLowest), s));
  });
  return simd::max_lane(top);
}

}  // namespace

RowStats row_stats(std::span<const float> logits, float inv_temperature, bool with_entropy) {
  RowStats stats;
  stats.max = row_max(logits, inv_temperature);
  const F8 scale = simd::splat(inv_temperature), shift = simd::splat(stats.max);
  double total = 0, weighted = 0;
  const int64_t size = static_cast<int64_t>(logits.size());
  for (int64_t begin = 0; begin < size; begin += kSumBlock) {
    F8 sum = simd::zero(), dot = simd::zero();
    simd::for_vectors(std::min(kSumBlock, size - begin), [&](int64_t i, int64_t n) {
      const F8 x = simd::sub(simd::mul(simd::load_n(logits.data() + begin + i, n, kLowest), scale), shift);
      const F8 bounded = simd::max(simd::splat(kLowest), x);  // in this order a NaN stays one
      const F8 e = simd::exp(bounded);
      sum = simd::fma(bounded, simd::zero(), simd::add(sum, e));  // and makes the sum one
      if (with_entropy) dot = simd::fma(e, simd::max(x, simd::splat(-1e4f)), dot);
    });
    total += simd::sum(sum);
    if (with_entropy) weighted += simd::sum(dot);
  }
  stats.log_sum = static_cast<float>(std::log(total));
  if (with_entropy) stats.entropy = static_cast<float>(std::log(total) - weighted / total);
  return stats;
}

float logprob(std::span<const float> logits, int32_t id, float inv_temperature, const RowStats& stats) {
  return (logits[id] * inv_temperature - stats.max) - stats.log_sum;
}

int32_t invert_distribution(std::span<const float> logits, float inv_temperature, const RowStats& stats,
                            double uniform) {
  const F8 scale = simd::splat(inv_temperature), shift = simd::splat(stats.max);
  const auto weights = [&](int64_t i, int64_t n) {
    const F8 x = simd::sub(simd::mul(simd::load_n(logits.data() + i, n, kLowest), scale), shift);
    return simd::exp(simd::max(x, simd::splat(kLowest)));
  };
  const int64_t size = static_cast<int64_t>(logits.size());
  std::vector<double> blocks;
  double total = 0;
  for (int64_t begin = 0; begin < size; begin += kSumBlock) {
    F8 sum = simd::zero();
    simd::for_vectors(std::min(kSumBlock, size - begin),
                      [&](int64_t i, int64_t n) { sum = simd::add(sum, weights(begin + i, n)); });
    blocks.push_back(simd::sum(sum));
    total += blocks.back();
  }
  // The block that holds the goal, then the id in it. Rounding may leave the goal past a block's own sum: its last id
  // of any weight is then the one.
  double goal = uniform * total;
  size_t block = 0;
  while (block + 1 < blocks.size() && goal >= blocks[block]) goal -= blocks[block++];
  while (block > 0 && blocks[block] == 0) --block, goal = blocks[block];
  const int64_t begin = static_cast<int64_t>(block) * kSumBlock, end = std::min(size, begin + kSumBlock);
  double sum = 0;
  int64_t last = begin;
  for (int64_t i = begin; i < end; i += simd::kLanes) {
    float lanes[simd::kLanes];
    simd::store(lanes, weights(i, std::min<int64_t>(simd::kLanes, end - i)));
    for (int64_t j = i; j < std::min(end, i + simd::kLanes); ++j) {
      if (lanes[j - i] <= 0) continue;
      last = j;
      sum += lanes[j - i];
      if (sum > goal) return static_cast<int32_t>(j);
    }
  }
  return static_cast<int32_t>(last);
}

// With x = logits · s, p = softmax(x):  d log p(t) / d x = onehot(t) − p;  d entropy / d x = −p · (log p + entropy).
void logits_backward(std::span<float> logits, float inv_temperature, const RowStats& stats,
                     std::span<const TargetGradient> targets, float dentropy) {
  float total = 0;
  for (const TargetGradient& target : targets) total += target.dlogprob;
  const F8 scale = simd::splat(inv_temperature), shift = simd::splat(stats.max), log_sum = simd::splat(stats.log_sum);
  const F8 pull = simd::splat(-total), push = simd::splat(-dentropy), entropy = simd::splat(stats.entropy);
  simd::for_vectors(static_cast<int64_t>(logits.size()), [&](int64_t i, int64_t n) {
    const F8 x = simd::sub(simd::mul(simd::load_n(logits.data() + i, n), scale), shift);
    const F8 logp = simd::max(simd::sub(x, log_sum), simd::splat(-1e4f));
    const F8 p = simd::exp(logp);
    const F8 slope = simd::fma(push, simd::add(logp, entropy), pull);
    simd::store_n(logits.data() + i, n, simd::mul(simd::mul(p, slope), scale));
  });
  for (const TargetGradient& target : targets) logits[target.id] += target.dlogprob * inv_temperature;
}

}  // namespace tandem::kernels
