#include "kernels/chunks.h"
#include "kernels/cuda/device_table.h"
#include "kernels/cuda/optimizer.h"
#include "kernels/cuda/torch_args.h"

namespace tandem::cuda {
namespace {

// The tables live as long as `buffer`.
struct Table {
  OptimizerTable table;
  at::Tensor buffer;
};

static_assert(kSquareChunk == kernels::kSquareBlock);

std::vector<int64_t> starts_of(std::span<const OptimizerTensor> tensors, int64_t chunk) {
  std::vector<int64_t> sizes;
  for (const auto& tensor : tensors) sizes.push_back(tensor.size);
  return kernels::chunk_starts(sizes, chunk);
}

Table upload_table(std::span<const OptimizerTensor> tensors, const std::vector<int64_t>& starts, float scale,
                   size_t& at_scale) {
  Upload upload;
  const size_t at_tensors = upload.add(tensors), at_starts = upload.add(starts);
  at_scale = upload.add(std::span<const float>(&scale, 1));
  at::Tensor buffer = upload.send();
  return {{at_offset<OptimizerTensor>(buffer, at_tensors), at_offset<int64_t>(buffer, at_starts),
           static_cast<int64_t>(tensors.size()), starts.back()},
          buffer};
}

}  // namespace

void adamw(const kernels::AdamW& settings, std::span<const kernels::AdamWTensors> all) {
  std::vector<OptimizerTensor> tensors;
  for (const auto& t : all)
    tensors.push_back({single(t.gradient), single(t.weight), single(t.moment1), single(t.moment2),
                       half_or_null(t.compute_weight), t.weight.numel()});
  size_t at_scale = 0;
  const Table table =
      upload_table(tensors, starts_of(tensors, kOptimizerChunk), static_cast<float>(settings.gradient_scale), at_scale);
  launched(adamw(table.table,
                 {settings.lr, settings.beta1, settings.beta2, settings.eps, settings.weight_decay, settings.step},
                 at_offset<float>(table.buffer, at_scale), stream()),
           "adamw");
}

void spread_rounded(at::Tensor& values, uint64_t key) {
  launched(spread_rounded(single(values), values.numel(), key, stream()), "spread_rounded");
}

std::vector<std::vector<double>> block_squares(std::span<const at::Tensor> all) {
  std::vector<OptimizerTensor> tensors;
  for (const at::Tensor& t : all) tensors.push_back({single(t), nullptr, nullptr, nullptr, nullptr, t.numel()});
  const std::vector<int64_t> starts = starts_of(tensors, kSquareChunk);
  size_t at_scale = 0;
  const Table table = upload_table(tensors, starts, 1.0f, at_scale);
  std::vector<double> sums(static_cast<size_t>(starts.back()));
  const auto result = device_bytes(starts.back() * static_cast<int64_t>(sizeof(double)));
  launched(block_squares(table.table, static_cast<double*>(result.data_ptr()), stream()), "block_squares");
  download(result.data_ptr(), std::span(sums));
  std::vector<std::vector<double>> by_tensor;
  for (size_t i = 0; i < tensors.size(); ++i)
    by_tensor.emplace_back(sums.begin() + starts[i], sums.begin() + starts[i + 1]);
  return by_tensor;
}

void accumulate(const at::Tensor& to, const at::Tensor& from) {
  if (to.numel() == 0) return;
  launched(accumulate(single(to), single(from), to.numel(), stream()), "accumulate");
}

}  // namespace tandem::cuda
