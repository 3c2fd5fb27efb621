#include <algorithm>
#include <array>

#include "kernels/cuda/device_table.h"
#include "kernels/cuda/draw.h"
#include "kernels/cuda/head.h"
#include "kernels/cuda/torch_args.h"

namespace tandem::cuda {
namespace {

LogitsView view(const at::Tensor& logits) { return {single(logits), logits.size(0), logits.size(1), logits.size(1)}; }

// max, log_sum and entropy of each row: three rows of one tensor.
RowStats stats_in(const at::Tensor& stats_3R, bool with_entropy) {
  float* data = single(stats_3R);
  const int64_t rows = stats_3R.size(1);
  return {data, data + rows, with_entropy ? data + 2 * rows : nullptr};
}

std::vector<int32_t> target_ids(std::span<const kernels::LogitTarget> targets, int64_t rows) {
  check(static_cast<int64_t>(targets.size()) == rows, "on a GPU a row of logits has one target");
  std::vector<int32_t> ids;
  for (size_t i = 0; i < targets.size(); ++i) {
    check(targets[i].row == static_cast<int32_t>(i), "on a GPU a row of logits has one target");
    ids.push_back(targets[i].id);
  }
  return ids;
}

}  // namespace

void target_logprobs(const at::Tensor& logits, std::span<const float> inverse,
                     std::span<const kernels::LogitTarget> targets, bool with_entropy, kernels::LogitStats& stats,
                     std::span<kernels::TargetStats> out) {
  const int64_t rows = logits.size(0);
  Upload upload;
  const size_t at_inverse = upload.add(inverse), at_ids = upload.add(target_ids(targets, rows));
  const at::Tensor inputs = upload.send();
  // max, log_sum, entropy, log-prob: what the way back needs stays, the last two go to the host in one copy.
  stats.device = at::empty({4, rows}, logits.options());
  const RowStats found = stats_in(stats.device, with_entropy);
  float* logprobs = single(stats.device) + 3 * rows;
  const auto workspace = device_bytes(static_cast<int64_t>(row_stats_workspace_bytes(rows, logits.size(1))));
  launched(row_stats(view(logits), at_offset<float>(inputs, at_inverse), found, workspace.data_ptr(), stream()),
           "row_stats");
  launched(target_logprobs(view(logits), at_offset<float>(inputs, at_inverse), found,
                           at_offset<int32_t>(inputs, at_ids), logprobs, stream()),
           "target_logprobs");
  std::vector<float> host(static_cast<size_t>(2 * rows));
  download(single(stats.device) + 2 * rows, std::span(host));
  for (int64_t i = 0; i < rows; ++i) out[i] = {host[rows + i], with_entropy ? host[i] : 0.0f};
}

at::Tensor target_logprobs_backward(at::Tensor& logits, std::span<const float> inverse,
                                    std::span<const kernels::LogitTarget> targets, const kernels::LogitStats& stats,
                                    std::span<const kernels::TargetSlopes> slopes) {
  const int64_t rows = logits.size(0), vocabulary = logits.size(1);
  std::vector<float> dlogprobs, dentropies;
  for (const auto& slope : slopes) {
    dlogprobs.push_back(static_cast<float>(slope.logprob));
    dentropies.push_back(static_cast<float>(slope.entropy));
  }
  const bool with_entropy = std::ranges::any_of(dentropies, [](float d) { return d != 0; });
  Upload upload;
  const size_t at_inverse = upload.add(inverse), at_ids = upload.add(target_ids(targets, rows)),
               at_dlogprobs = upload.add(dlogprobs), at_dentropies = upload.add(dentropies);
  const at::Tensor inputs = upload.send();
  const HeadGradient gradient{at_offset<int32_t>(inputs, at_ids), at_offset<float>(inputs, at_dlogprobs),
                              with_entropy ? at_offset<float>(inputs, at_dentropies) : nullptr};
  // Each row of bf16 gradients overwrites the first half of its fp32 logits.
  const at::Tensor halves = logits.view(at::kBFloat16);
  launched(logits_backward(view(logits), at_offset<float>(inputs, at_inverse), stats_in(stats.device, with_entropy),
                           gradient, static_cast<bf16*>(halves.data_ptr()), 2 * vocabulary, stream()),
           "logits_backward");
  return halves.narrow(1, 0, vocabulary);
}

void draw(const at::Tensor& logits, int64_t num_drawable, std::span<const kernels::DrawRow> rows,
          std::span<kernels::Drawn> out) {
  const int64_t count = logits.size(0);
  check(static_cast<int64_t>(rows.size()) == count, "one draw a row of logits");
  const DrawArrays arrays = draw_arrays(rows);
  Upload upload;
  const size_t at_rows = upload.add(arrays.rows), at_inverse = upload.add(arrays.inverse_temperature),
               at_positions = upload.add(arrays.positions), at_barred = upload.add(arrays.barred);
  const at::Tensor inputs = upload.send();
  const DrawInputs on_device{at_offset<SamplingRow>(inputs, at_rows), at_offset<float>(inputs, at_inverse),
                             at_offset<int32_t>(inputs, at_positions), at_offset<int32_t>(inputs, at_barred)};
  const at::Tensor outputs = launch_draw(logits, num_drawable, on_device, arrays.narrowing);
  std::vector<float> host(static_cast<size_t>(3 * count));
  download(outputs.data_ptr(), std::span(host));
  read_drawn(host.data(), count, out);
}

}  // namespace tandem::cuda
