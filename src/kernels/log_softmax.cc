// Log-probabilities of a row of logits. Sums run over blocks of 1,024 ids in fp32 lanes, blocks add up in fp64.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "kernels/kernels.h"
#include "kernels/simd.h"
#include "kernels/vocabulary_piece.h"

namespace tandem::kernels {
namespace {

using simd::F8;
constexpr int64_t kSumBlock = 1024;
constexpr float kLowest = -3.0e38f;

}  // namespace

float scaled_max(std::span<const float> logits, float scale) {
  F8 top = simd::splat(kLowest);
  const F8 s = simd::splat(scale);
  simd::for_vectors(static_cast<int64_t>(logits.size()), [&](int64_t i, int64_t n) {
    top = simd::max(top, simd::mul(simd::load_n(logits.data() + i, n, kLowest), s));
  });
  return simd::max_lane(top);
}

ExpSums exp_sums(std::span<const float> logits, float inv_temperature, float max, bool with_entropy) {
  const F8 scale = simd::splat(inv_temperature), shift = simd::splat(max);
  ExpSums sums;
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
    sums.total += simd::sum(sum);
    if (with_entropy) sums.weighted += simd::sum(dot);
  }
  return sums;
}

RowStats stats_of(float max, const ExpSums& sums, bool with_entropy) {
  RowStats stats{max, static_cast<float>(std::log(sums.total)), 0};
  if (with_entropy) stats.entropy = static_cast<float>(std::log(sums.total) - sums.weighted / sums.total);
  return stats;
}

RowStats row_stats(std::span<const float> logits, float inv_temperature, bool with_entropy) {
  const float max = scaled_max(logits, inv_temperature);
  return stats_of(max, exp_sums(logits, inv_temperature, max, with_entropy), with_entropy);
}

float logprob(std::span<const float> logits, int32_t id, float inv_temperature, const RowStats& stats) {
  return (logits[id] * inv_temperature - stats.max) - stats.log_sum;
}

namespace {

F8 weights_at(std::span<const float> logits, int64_t i, int64_t n, F8 scale, F8 shift) {
  const F8 x = simd::sub(simd::mul(simd::load_n(logits.data() + i, n, kLowest), scale), shift);
  return simd::exp(simd::max(x, simd::splat(kLowest)));
}

std::vector<double> block_weights(std::span<const float> logits, F8 scale, F8 shift) {
  std::vector<double> blocks;
  const int64_t size = static_cast<int64_t>(logits.size());
  for (int64_t begin = 0; begin < size; begin += kSumBlock) {
    F8 sum = simd::zero();
    simd::for_vectors(std::min(kSumBlock, size - begin), [&](int64_t i, int64_t n) {
      sum = simd::add(sum, weights_at(logits, begin + i, n, scale, shift));
    });
    blocks.push_back(simd::sum(sum));
  }
  return blocks;
}

int32_t invert_blocks(std::span<const float> logits, F8 scale, F8 shift, std::span<const double> blocks, double goal) {
  const int64_t size = static_cast<int64_t>(logits.size());
  // The block that holds the goal, then the id in it. Rounding may leave the goal past a block's own sum: its last id
  // of any weight is then the one.
  size_t block = 0;
  while (block + 1 < blocks.size() && goal >= blocks[block]) goal -= blocks[block++];
  while (block > 0 && blocks[block] == 0) --block, goal = blocks[block];
  const int64_t begin = static_cast<int64_t>(block) * kSumBlock, end = std::min(size, begin + kSumBlock);
  double sum = 0;
  int64_t last = begin;
  for (int64_t i = begin; i < end; i += simd::kLanes) {
    float lanes[simd::kLanes];
    simd::store(lanes, weights_at(logits, i, std::min<int64_t>(simd::kLanes, end - i), scale, shift));
    for (int64_t j = i; j < std::min(end, i + simd::kLanes); ++j) {
      if (lanes[j - i] <= 0) continue;
      last = j;
      sum += lanes[j - i];
      if (sum > goal) return static_cast<int32_t>(j);
    }
  }
  return static_cast<int32_t>(last);
}

}  // namespace

int32_t invert_distribution(std::span<const float> logits, float inv_temperature, const RowStats& stats,
                            double uniform) {
  const F8 scale = simd::splat(inv_temperature), shift = simd::splat(stats.max);
  const std::vector<double> blocks = block_weights(logits, scale, shift);
  return invert_blocks(logits, scale, shift, blocks, uniform * std::accumulate(blocks.begin(), blocks.end(), 0.0));
}

int32_t invert_sum(std::span<const float> logits, float inv_temperature, float max, double goal) {
  const F8 scale = simd::splat(inv_temperature), shift = simd::splat(max);
  return invert_blocks(logits, scale, shift, block_weights(logits, scale, shift), goal);
}

// With x = logits · s, p = softmax(x):  d log p(t) / d x = onehot(t) − p;  d entropy / d x = −p · (log p + entropy).
void logits_backward(std::span<float> logits, float inv_temperature, const RowStats& stats,
                     std::span<const TargetGradient> targets, float dentropy) {
  piece_backward(logits, 0, inv_temperature, stats, targets, dentropy);
}

void piece_backward(std::span<float> logits, int32_t first, float inv_temperature, const RowStats& stats,
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
  for (const TargetGradient& target : targets)
    if (target.id >= first && target.id < first + std::ssize(logits))
      logits[target.id - first] += target.dlogprob * inv_temperature;
}

}  // namespace tandem::kernels
