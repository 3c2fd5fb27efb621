#include "kernels/device_ops.h"
#include "kernels/parallel_for.h"
#include "kernels/tensor_view.h"

namespace tandem::kernels {
namespace {

class Rows {
 public:
  explicit Rows(const at::Tensor& logits) : data_(f32(logits)), vocab_(logits.size(1)) {}
  std::span<float> operator[](int64_t row) const { return {data_ + row * vocab_, static_cast<size_t>(vocab_)}; }

 private:
  float* data_;
  int64_t vocab_;
};

}  // namespace

void target_logprobs(const at::Tensor& logits, std::span<const float> inverse, std::span<const LogitTarget> targets,
                     bool with_entropy, LogitStats& stats, std::span<TargetStats> out) {
  for (const LogitTarget& target : targets)
    check(target.id >= 0 && target.id < logits.size(1), "a response id is outside the vocabulary");
  if (on_device(logits)) return device_ops().target_logprobs(logits, inverse, targets, with_entropy, stats, out);
  const Rows rows(logits);
  stats.rows.resize(static_cast<size_t>(logits.size(0)));
  parallel_for(logits.size(0), 1, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) stats.rows[i] = row_stats(rows[i], inverse[i], with_entropy);
  });
  for (size_t t = 0; t < targets.size(); ++t) {
    const auto [row, id] = targets[t];
    out[t] = {logprob(rows[row], id, inverse[row], stats.rows[row]), stats.rows[row].entropy};
  }
}

at::Tensor target_logprobs_backward(at::Tensor& logits, std::span<const float> inverse,
                                    std::span<const LogitTarget> targets, const LogitStats& stats,
                                    std::span<const TargetSlopes> slopes) {
  if (on_device(logits)) return device_ops().target_logprobs_backward(logits, inverse, targets, stats, slopes);
  const Rows rows(logits);
  std::vector<size_t> first_target(static_cast<size_t>(logits.size(0)) + 1, 0);
  for (const LogitTarget& target : targets) ++first_target[target.row + 1];
  for (size_t i = 1; i < first_target.size(); ++i) first_target[i] += first_target[i - 1];
  parallel_for(logits.size(0), 1, [&](int64_t first, int64_t last) {
    std::vector<TargetGradient> of_row;
    for (int64_t i = first; i < last; ++i) {
      of_row.clear();
      double dentropy = 0;
      for (size_t t = first_target[i]; t < first_target[i + 1]; ++t) {
        of_row.push_back({targets[t].id, static_cast<float>(slopes[t].logprob)});
        dentropy += slopes[t].entropy;
      }
      logits_backward(rows[i], inverse[i], stats.rows[i], of_row, static_cast<float>(dentropy));
    }
  });
  return logits;
}

void draw(const at::Tensor& logits, int64_t num_drawable, std::span<const DrawRow> rows, std::span<Drawn> out) {
  check(on_device(logits), "the CPU draws by rollout/sampler.h");
  device_ops().draw(logits, num_drawable, rows, out);
}

std::unique_ptr<DecodeGraph> record_decode(const DecodeGraphShape& shape,
                                           const std::function<at::Tensor(const PlacedBatch&)>& pass) {
  return device_ops().record_decode(shape, pass);
}

}  // namespace tandem::kernels
