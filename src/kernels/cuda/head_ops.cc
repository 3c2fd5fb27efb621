#include <algorithm>
#include <array>

#include "kernels/cuda/device_table.h"
#include "kernels/cuda/head.h"
#include "kernels/cuda/sampler.h"
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
  std::vector<SamplingRow> settings;
  std::vector<float> inverse;
  std::vector<int32_t> positions, barred;
  bool narrowing = false;
  for (const kernels::DrawRow& row : rows) {
    check(row.barred.size() <= kMaxBarredIds, "at most 16 ids can end a response on a GPU; use fewer stop_token_ids");
    SamplingRow& s = settings.emplace_back();
    s.philox_key = row.philox_key, s.prompt_id = row.prompt_id, s.sample_index = row.sample_index;
    s.top_p = row.top_p, s.min_p = row.min_p, s.top_k = row.top_k, s.greedy = row.greedy ? 1 : 0;
    s.num_barred = static_cast<int32_t>(row.barred.size());
    s.barred_offset = static_cast<int32_t>(barred.size());
    s.min_tokens = row.barred.empty() ? 0 : row.position + 1;  // the host has decided: barred now or not at all
    barred.insert(barred.end(), row.barred.begin(), row.barred.end());
    inverse.push_back(row.inv_temperature);
    positions.push_back(static_cast<int32_t>(row.position));
    narrowing |= !row.greedy && (row.top_k > 0 || row.top_p < 1 || row.min_p > 0);
  }
  Upload upload;
  const size_t at_rows = upload.add(settings), at_inverse = upload.add(inverse), at_positions = upload.add(positions),
               at_barred = upload.add(barred);
  const at::Tensor inputs = upload.send();
  const at::Tensor outputs = at::empty({5, count}, logits.options());  // ids, log-prob, entropy, max, log_sum
  float* data = single(outputs);
  const auto workspace = device_bytes(static_cast<int64_t>(sampler_workspace_bytes(count, logits.size(1))));
  const SamplerInputs in{view(logits),
                         num_drawable,
                         at_offset<float>(inputs, at_inverse),
                         at_offset<SamplingRow>(inputs, at_rows),
                         at_offset<int32_t>(inputs, at_positions),
                         barred.empty() ? nullptr : at_offset<int32_t>(inputs, at_barred),
                         narrowing};
  const SamplerOutputs result{
      reinterpret_cast<int32_t*>(data), nullptr, data + count, {data + 3 * count, data + 4 * count, data + 2 * count}};
  launched(sample(in, result, workspace.data_ptr(), stream()), "sample");
  std::vector<float> host(static_cast<size_t>(3 * count));
  download(data, std::span(host));
  for (int64_t i = 0; i < count; ++i) {
    std::memcpy(&out[i].id, &host[i], sizeof(int32_t));
    out[i].logprob = host[count + i], out[i].entropy = host[2 * count + i];
  }
}

}  // namespace tandem::cuda
