#include "train/squared_probs.h"

#include <algorithm>
#include <cmath>

#include "kernels/tensor_view.h"

namespace tandem {
namespace {

constexpr int64_t kRowsAtOnce = 64;

double squared_probs(std::span<const float> logits, float inverse_temperature) {
  const kernels::RowStats stats = kernels::row_stats(logits, inverse_temperature, false);
  double sum = 0;
  for (const float logit : logits)
    sum += std::exp(2.0 * (double{logit} * inverse_temperature - stats.max - stats.log_sum));
  return sum;
}

}  // namespace

std::vector<std::vector<float>> packed_squared_probs(const Decoder& decoder, std::span<const PackItem> items,
                                                     std::span<const double> temperatures, int64_t max_micro_tokens) {
  auto all = values_of_tokens(items);
  const int64_t vocab = decoder.config().vocab_size;
  const at::Tensor buffer = kernels::empty({kRowsAtOnce, vocab});
  for_packed(items, max_micro_tokens, false, [&](size_t begin, const PackedBatch& batch) {
    const at::Tensor normed = decoder.final_norm(decoder.forward_packed(batch.tokens), batch.rows);
    auto target = batch.targets.begin();
    for (int64_t first = 0; first < normed.size(0); first += kRowsAtOnce) {
      const int64_t count = std::min(kRowsAtOnce, normed.size(0) - first);
      at::Tensor logits = buffer.narrow(0, 0, count);
      decoder.logits(normed.narrow(0, first, count), logits);
      for (; target != batch.targets.end() && target->row < first + count; ++target) {
        const float* row = kernels::f32(logits) + (target->row - first) * vocab;
        const auto inverse = static_cast<float>(1.0 / temperatures[begin + target->item]);
        all[begin + target->item][target->position] =
            static_cast<float>(squared_probs({row, static_cast<size_t>(vocab)}, inverse));
      }
    }
  });
  return all;
}

}  // namespace tandem
