#include "train/head.h"

#include <algorithm>

#include "base/error.h"
#include "kernels/parallel_for.h"
#include "kernels/tensor_view.h"

namespace tandem {
namespace {

constexpr int64_t kLogitBytes = 64 << 20;

int64_t rows_at_once(int64_t vocab) { return std::max<int64_t>(8, kLogitBytes / (4 * vocab)); }

// Rows [begin, begin + count) and the targets [first, last) that lie in them.
struct Run {
  int64_t begin, count;
  size_t first, last;
};

std::vector<Run> runs(const PackedBatch& batch, int64_t vocab) {
  std::vector<Run> all;
  const int64_t rows = static_cast<int64_t>(batch.rows.size()), step = rows_at_once(vocab);
  size_t next = 0;
  for (int64_t begin = 0; begin < rows; begin += step) {
    Run run{begin, std::min(step, rows - begin), next, next};
    while (run.last < batch.targets.size() && batch.targets[run.last].row < begin + run.count) ++run.last;
    next = run.last;
    all.push_back(run);
  }
  return all;
}

class LogitRun {
 public:
  LogitRun(const PackedBatch& batch, const Run& run, std::span<const double> temperatures, const at::Tensor& logits)
      : batch_(batch),
        run_(run),
        vocab_(logits.size(1)),
        logits_(kernels::f32(logits)),
        stats_(run.count),
        inverse_(run.count, 1.0f),
        first_target_(run.count + 1, run.last) {
    for (size_t t = run.last; t-- > run.first;) {
      check(batch.targets[t].id >= 0 && batch.targets[t].id < vocab_, "a response id is outside the vocabulary");
      const int64_t row = batch.targets[t].row - run.begin;
      inverse_[row] = static_cast<float>(1.0 / temperatures[batch.targets[t].item]);
      first_target_[row] = t;
    }
    // A row without a target (there is none today) would take its successor's.
    for (int64_t row = run.count; row-- > 0;) first_target_[row] = std::min(first_target_[row], first_target_[row + 1]);
  }

  void compute_stats(bool with_entropy) {
    kernels::parallel_for(run_.count, 1, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) stats_[i] = kernels::row_stats(row(i), inverse_[i], with_entropy);
    });
  }

  TargetStats target(size_t t) const {
    const int64_t i = batch_.targets[t].row - run_.begin;
    return {kernels::logprob(row(i), batch_.targets[t].id, inverse_[i], stats_[i]), stats_[i].entropy};
  }

  // Logits become their gradients; slopes are those of the run's targets.
  void backward(std::span<const TargetSlopes> slopes) {
    kernels::parallel_for(run_.count, 1, [&](int64_t first, int64_t last) {
      std::vector<kernels::TargetGradient> targets;
      for (int64_t i = first; i < last; ++i) {
        targets.clear();
        double dentropy = 0;
        for (size_t t = first_target_[i]; t < first_target_[i + 1]; ++t) {
          const TargetSlopes& slope = slopes[t - run_.first];
          targets.push_back({batch_.targets[t].id, static_cast<float>(slope.logprob)});
          dentropy += slope.entropy;
        }
        kernels::logits_backward(row(i), inverse_[i], stats_[i], targets, static_cast<float>(dentropy));
      }
    });
  }

 private:
  std::span<float> row(int64_t i) const { return {logits_ + i * vocab_, static_cast<size_t>(vocab_)}; }

  const PackedBatch& batch_;
  Run run_;
  int64_t vocab_;
  float* logits_;
  std::vector<kernels::RowStats> stats_;
  std::vector<float> inverse_;        // 1 / temperature, a row
  std::vector<size_t> first_target_;  // a row; one more at the end
};

}  // namespace

std::vector<TargetStats> head_forward(const Decoder& decoder, const at::Tensor& x, const PackedBatch& batch,
                                      std::span<const double> temperatures, bool with_entropy) {
  const int64_t vocab = decoder.config().vocab_size;
  const at::Tensor normed = decoder.final_norm(x, batch.rows);
  std::vector<TargetStats> all(batch.targets.size());
  at::Tensor buffer = kernels::empty({std::min(rows_at_once(vocab), normed.size(0)), vocab});
  for (const Run& run : runs(batch, vocab)) {
    at::Tensor logits = buffer.narrow(0, 0, run.count);
    decoder.logits(normed.narrow(0, run.begin, run.count), logits);
    LogitRun rows(batch, run, temperatures, logits);
    rows.compute_stats(with_entropy);
    for (size_t t = run.first; t < run.last; ++t) all[t] = rows.target(t);
  }
  return all;
}

at::Tensor head_forward_backward(const Decoder& decoder, const at::Tensor& x, const PackedBatch& batch,
                                 std::span<const double> temperatures, bool with_entropy, const TargetLoss& loss,
                                 DecoderWeights& gradients) {
  const int64_t vocab = decoder.config().vocab_size;
  const at::Tensor normed = decoder.final_norm(x, batch.rows);
  at::Tensor dnormed = kernels::zeros(normed.sizes()), no_bias;
  at::Tensor buffer = kernels::empty({std::min(rows_at_once(vocab), normed.size(0)), vocab});
  std::vector<TargetSlopes> slopes;
  for (const Run& run : runs(batch, vocab)) {
    at::Tensor logits = buffer.narrow(0, 0, run.count);
    const at::Tensor inputs = normed.narrow(0, run.begin, run.count);
    decoder.logits(inputs, logits);
    LogitRun rows(batch, run, temperatures, logits);
    rows.compute_stats(with_entropy);
    slopes.clear();
    for (size_t t = run.first; t < run.last; ++t) slopes.push_back(loss(t, rows.target(t)));
    rows.backward(slopes);
    at::Tensor dinputs = dnormed.narrow(0, run.begin, run.count);
    kernels::linear_backward_input(logits, decoder.weights().lm_head_VE, dinputs);
    kernels::linear_backward_weight(logits, inputs, gradients.lm_head_VE, no_bias);
  }
  at::Tensor dx = kernels::zeros(x.sizes());
  decoder.final_norm_backward(dnormed, x, batch.rows, dx, gradients);
  return dx;
}

}  // namespace tandem
