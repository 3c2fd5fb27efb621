#include "train/head.h"

#include <ATen/ops/zeros_like.h>

#include <algorithm>

namespace tandem {
namespace {

// What logits may take: on the CPU little more than the cache, on a GPU enough rows to fill it.
constexpr int64_t kLogitBytes = 16 << 20, kDeviceLogitBytes = int64_t{2} << 30;

int64_t rows_at_once(const at::Tensor& normed, int64_t vocab) {
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

at::Tensor logits_buffer(const at::Tensor& normed, int64_t vocab) {
  return kernels::empty_fp32({std::min(rows_at_once(normed, vocab), normed.size(0)), vocab}, normed);
}

}  // namespace

std::vector<TargetStats> head_forward(const Decoder& decoder, const at::Tensor& x, const PackedBatch& batch,
                                      std::span<const double> temperatures, bool with_entropy) {
  const int64_t vocab = decoder.config().vocab_size;
  const at::Tensor normed = decoder.final_norm(x, batch.rows);
  std::vector<TargetStats> all(batch.targets.size());
  const at::Tensor buffer = logits_buffer(normed, vocab);
  for (const Run& run : runs(batch, rows_at_once(normed, vocab))) {
    at::Tensor logits = buffer.narrow(0, 0, run.count);
    decoder.logits(normed.narrow(0, run.begin, run.count), logits);
    const RunTargets wanted = targets_of(batch, run, temperatures);
    kernels::LogitStats stats;
    kernels::target_logprobs(logits, wanted.inverse_temperature, wanted.targets, with_entropy, stats,
                             std::span(all).subspan(run.first, run.last - run.first));
  }
  return all;
}

at::Tensor head_forward_backward(const Decoder& decoder, const at::Tensor& x, const PackedBatch& batch,
                                 std::span<const double> temperatures, bool with_entropy, const TargetLoss& loss,
                                 DecoderWeights& gradients) {
  const int64_t vocab = decoder.config().vocab_size;
  const at::Tensor normed = decoder.final_norm(x, batch.rows);
  at::Tensor dnormed = kernels::empty(normed.sizes(), normed);
  const at::Tensor buffer = logits_buffer(normed, vocab);
  std::vector<TargetStats> found;
  std::vector<TargetSlopes> slopes;
  for (const Run& run : runs(batch, rows_at_once(normed, vocab))) {
    at::Tensor logits = buffer.narrow(0, 0, run.count);
    const at::Tensor inputs = normed.narrow(0, run.begin, run.count);
    decoder.logits(inputs, logits);
    const RunTargets wanted = targets_of(batch, run, temperatures);
    kernels::LogitStats stats;
    found.resize(wanted.targets.size());
    kernels::target_logprobs(logits, wanted.inverse_temperature, wanted.targets, with_entropy, stats, found);
    slopes.clear();
    for (size_t i = 0; i < found.size(); ++i) slopes.push_back(loss(run.first + i, found[i]));
    const at::Tensor dlogits =
        kernels::target_logprobs_backward(logits, wanted.inverse_temperature, wanted.targets, stats, slopes);
    at::Tensor dinputs = dnormed.narrow(0, run.begin, run.count);
    decoder.logits_backward(dlogits, inputs, dinputs, gradients);
  }
  at::Tensor dx = at::zeros_like(x);
  decoder.final_norm_backward(dnormed, x, batch.rows, dx, gradients);
  return dx;
}

}  // namespace tandem
