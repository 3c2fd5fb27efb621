#include "train/head.h"

#include <ATen/ops/zeros_like.h>

#include <algorithm>

#include "model/split_logits.h"

namespace tandem {
namespace {

// What logits may take: on the CPU little more than the cache, on a GPU enough rows to fill it.
constexpr int64_t kLogitBytes = 16 << 20, kDeviceLogitBytes = int64_t{2} << 30;

int64_t rows_of_logits(const at::Tensor& normed, int64_t vocab) {
  return std::max<int64_t>(8, (normed.is_cpu() ? kLogitBytes : kDeviceLogitBytes) / (4 * vocab));
}

// Rows [begin, begin + count) and the targets [first, last) that lie in them.
struct Run {
  int64_t begin, count;
  size_t first, last;
};

std::vector<Run> runs(const PackedBatch& batch, int64_t step) {
  std::vector<Run> all;
  const int64_t rows = static_cast<int64_t>(batch.rows.size());
  size_t next = 0;
  for (int64_t begin = 0; begin < rows; begin += step) {
    Run run{begin, std::min(step, rows - begin), next, next};
    while (run.last < batch.targets.size() && batch.targets[run.last].row < begin + run.count) ++run.last;
    next = run.last;
    all.push_back(run);
  }
  return all;
}

// What the kernels want of a run: rows and targets counted from its start.
struct RunTargets {
  std::vector<float> inverse_temperature;  // a row
  std::vector<kernels::LogitTarget> targets;
};

RunTargets targets_of(const PackedBatch& batch, const Run& run, std::span<const double> temperatures) {
  RunTargets out{std::vector<float>(static_cast<size_t>(run.count), 1.0f), {}};
  for (size_t t = run.first; t < run.last; ++t) {
    const PackTarget& target = batch.targets[t];
    const auto row = static_cast<int32_t>(target.row - run.begin);
    out.inverse_temperature[row] = static_cast<float>(1.0 / temperatures[target.item]);
    out.targets.push_back({row, target.id});
  }
  return out;
}

// The rows of logits of a run, of all ids or of this tensor-parallel rank's.
class HeadLogits {
 public:
  HeadLogits(const Decoder& decoder, const at::Tensor& normed)
      : decoder_(decoder),
        normed_(normed),
        vocab_(decoder.config().vocab_size / (decoder.split() != nullptr ? decoder.split()->size() : 1)) {
    if (decoder.split() == nullptr)
      buffer_ = kernels::empty_fp32({std::min(rows_at_once(), normed.size(0)), vocab_}, normed);
  }

  int64_t rows_at_once() const { return rows_of_logits(normed_, vocab_); }

  at::Tensor logits(const Run& run) const {
    const at::Tensor inputs = normed_.narrow(0, run.begin, run.count);
    if (decoder_.split() != nullptr) return decoder_.own_logits(inputs);
    at::Tensor logits = buffer_.narrow(0, 0, run.count);
    decoder_.logits(inputs, logits);
    return logits;
  }

  void logprobs(const at::Tensor& logits, const RunTargets& wanted, bool with_entropy, kernels::LogitStats& stats,
                std::span<TargetStats> out) const {
    if (decoder_.split() != nullptr)
      return split_target_logprobs(*decoder_.split(), logits, wanted.inverse_temperature, wanted.targets, with_entropy,
                                   stats, out);
    kernels::target_logprobs(logits, wanted.inverse_temperature, wanted.targets, with_entropy, stats, out);
  }

  at::Tensor logprobs_backward(at::Tensor& logits, const RunTargets& wanted, const kernels::LogitStats& stats,
                               std::span<const TargetSlopes> slopes) const {
    if (decoder_.split() != nullptr)
      return split_target_logprobs_backward(*decoder_.split(), logits, wanted.inverse_temperature, wanted.targets,
                                            stats, slopes);
    return kernels::target_logprobs_backward(logits, wanted.inverse_temperature, wanted.targets, stats, slopes);
  }

 private:
  const Decoder& decoder_;
  at::Tensor normed_;
  int64_t vocab_;
  at::Tensor buffer_;
};

}  // namespace

std::vector<TargetStats> head_forward(const Decoder& decoder, const at::Tensor& x, const PackedBatch& batch,
                                      std::span<const double> temperatures, bool with_entropy) {
  const HeadLogits head(decoder, decoder.final_norm(x, batch.rows));
  std::vector<TargetStats> all(batch.targets.size());
  for (const Run& run : runs(batch, head.rows_at_once())) {
    const RunTargets wanted = targets_of(batch, run, temperatures);
    kernels::LogitStats stats;
    head.logprobs(head.logits(run), wanted, with_entropy, stats,
                  std::span(all).subspan(run.first, run.last - run.first));
  }
  return all;
}

at::Tensor head_forward_backward(const Decoder& decoder, const at::Tensor& x, const PackedBatch& batch,
                                 std::span<const double> temperatures, bool with_entropy, const TargetLoss& loss,
                                 DecoderWeights& gradients) {
  const at::Tensor normed = decoder.final_norm(x, batch.rows);
  const HeadLogits head(decoder, normed);
  at::Tensor dnormed = kernels::empty(normed.sizes(), normed);
  std::vector<TargetStats> found;
  std::vector<TargetSlopes> slopes;
  for (const Run& run : runs(batch, head.rows_at_once())) {
    at::Tensor logits = head.logits(run);
    const RunTargets wanted = targets_of(batch, run, temperatures);
    kernels::LogitStats stats;
    found.resize(wanted.targets.size());
    head.logprobs(logits, wanted, with_entropy, stats, found);
    slopes.clear();
    for (size_t i = 0; i < found.size(); ++i) slopes.push_back(loss(run.first + i, found[i]));
    const at::Tensor dlogits = head.logprobs_backward(logits, wanted, stats, slopes);
    at::Tensor dinputs = dnormed.narrow(0, run.begin, run.count);
    decoder.logits_backward(dlogits, normed.narrow(0, run.begin, run.count), dinputs, gradients);
  }
  at::Tensor dx = at::zeros_like(x);
  decoder.final_norm_backward(dnormed, x, batch.rows, dx, gradients);
  return dx;
}

}  // namespace tandem
