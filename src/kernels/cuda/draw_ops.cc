#include "kernels/cuda/draw.h"
#include "kernels/cuda/torch_args.h"

namespace tandem::cuda {

DrawArrays draw_arrays(std::span<const kernels::DrawRow> rows) {
  DrawArrays out;
  for (const kernels::DrawRow& row : rows) {
    check(row.barred.size() <= kMaxBarredIds, "more barred ids than the sampler has room for");
    SamplingRow& s = out.rows.emplace_back();
    s.philox_key = row.philox_key, s.prompt_id = row.prompt_id, s.sample_index = row.sample_index;
    s.top_p = row.top_p, s.min_p = row.min_p, s.top_k = row.top_k, s.greedy = row.greedy ? 1 : 0;
    s.num_barred = static_cast<int32_t>(row.barred.size());
    s.barred_offset = static_cast<int32_t>(out.barred.size());
    s.min_tokens = row.barred.empty() ? 0 : row.position + 1;  // the host has decided: barred now or not at all
    out.barred.insert(out.barred.end(), row.barred.begin(), row.barred.end());
    out.inverse_temperature.push_back(row.inv_temperature);
    out.positions.push_back(static_cast<int32_t>(row.position));
    out.narrowing |= !row.greedy && (row.top_k > 0 || row.top_p < 1 || row.min_p > 0);
  }
  return out;
}

at::Tensor launch_draw(const at::Tensor& logits, int64_t num_drawable, const DrawInputs& inputs, bool narrowing) {
  const int64_t count = logits.size(0);
  at::Tensor outputs = at::empty({5, count}, logits.options());
  float* data = single(outputs);
  const auto workspace = device_bytes(static_cast<int64_t>(sampler_workspace_bytes(count, logits.size(1))));
  const SamplerInputs in{{single(logits), count, logits.size(1), logits.size(1)},
                         num_drawable,
                         inputs.inverse_temperature,
                         inputs.rows,
                         inputs.positions,
                         inputs.barred,
                         narrowing};
  const SamplerOutputs result{
      reinterpret_cast<int32_t*>(data), nullptr, data + count, {data + 3 * count, data + 4 * count, data + 2 * count}};
  launched(sample(in, result, workspace.data_ptr(), stream()), "sample");
  return outputs;
}

void read_drawn(const float* host, int64_t stride, std::span<kernels::Drawn> out) {
  for (size_t i = 0; i < out.size(); ++i) {
    std::memcpy(&out[i].id, host + i, sizeof(int32_t));
    out[i].logprob = host[stride + static_cast<int64_t>(i)];
    out[i].entropy = host[2 * stride + static_cast<int64_t>(i)];
  }
}

}  // namespace tandem::cuda
