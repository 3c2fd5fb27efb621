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

Table upload_table(std::span<const OptimizerTensor> tensors, float scale, size_t& at_scale) {
  std::vector<int64_t> sizes;
  for (const auto& tensor : tensors) sizes.push_back(tensor.size);
  const std::vector<int64_t> starts = kernels::chunk_starts(sizes, kOptimizerChunk);
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
  const Table table = upload_table(tensors, static_cast<float>(settings.gradient_scale), at_scale);
  launched(adamw(table.table,
                 {settings.lr, settings.beta1, settings.beta2, settings.eps, settings.weight_decay, settings.step},
                 at_offset<float>(table.buffer, at_scale), stream()),
           "adamw");
}

void spread_rounded(at::Tensor& values, uint64_t key) {
  launched(spread_rounded(single(values), values.numel(), key, stream()), "spread_rounded");
}

double sum_of_squares(std::span<const at::Tensor> all) {
  std::vector<OptimizerTensor> tensors;
  for (const at::Tensor& t : all) tensors.push_back({single(t), nullptr, nullptr, nullptr, nullptr, t.numel()});
  size_t at_scale = 0;
  const Table table = upload_table(tensors, 1.0f, at_scale);
  const auto workspace =
      device_bytes(static_cast<int64_t>(sum_of_squares_workspace_bytes(table.table.num_chunks)) + 16);
  const auto result = device_bytes(sizeof(double));
  launched(sum_of_squares(table.table, static_cast<double*>(result.data_ptr()), workspace.data_ptr(), stream()),
           "sum_of_squares");
  double total = 0;
  download(result.data_ptr(), std::span(&total, 1));
  return total;
}

}  // namespace tandem::cuda
