// The device's side of kernels/kernels.h; see there for what each function means.
#pragma once

#include "kernels/side_work.h"

namespace tandem::cuda {

using kernels::PlacedBatch;

void synchronize(const at::Tensor& like);
kernels::DeviceMemory device_memory(const at::Tensor& like);
void upload(std::span<const kernels::HostCopy> copies);
void reset_peak_memory(const at::Tensor& like);
kernels::Mark mark(const at::Tensor& like);
void run_beside(const at::Tensor& like, const kernels::Mark& after, const std::function<void()>& work);
PlacedBatch place(const kernels::TokenBatch& batch, kernels::KeyLayout layout, const kernels::HeadShape& heads,
                  const at::Tensor& like);
void embedding(const PlacedBatch& batch, const at::Tensor& weight, at::Tensor& out);
void embedding_backward(const PlacedBatch& batch, const at::Tensor& dout, at::Tensor& dweight);
void gather_rows(const at::Tensor& x, std::span<const int32_t> rows, at::Tensor& out);
void gather_rows_backward(const at::Tensor& dout, std::span<const int32_t> rows, at::Tensor& dx);
void rms_norm(const at::Tensor& x, const at::Tensor& weight, float eps, at::Tensor& out);
void add_rms_norm(at::Tensor& x, const at::Tensor& y, const at::Tensor& weight, float eps, at::Tensor& out);
void rms_norm_backward(const at::Tensor& dout, const at::Tensor& x, const at::Tensor& weight, float eps, at::Tensor& dx,
                       at::Tensor& dweight);
void linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, at::Tensor& out);
void linear_backward_input(const at::Tensor& dout, const at::Tensor& weight, at::Tensor& dx);
void linear_backward_weight(const at::Tensor& dout, const at::Tensor& x, at::Tensor& dweight, at::Tensor& dbias);
void add(at::Tensor& x, const at::Tensor& y);
void add_to_columns(at::Tensor& x, int64_t first, float factor, const at::Tensor& y);
void take_columns(const at::Tensor& x, int64_t first, float factor, at::Tensor& y);
void attend(const at::Tensor& qkv, const kernels::QkvTransform& transform, const PlacedBatch& batch, at::Tensor& kv,
            at::Tensor& out, at::Tensor& logsumexp);
void attend_backward(const at::Tensor& dout, const at::Tensor& qkv, const kernels::QkvTransform& transform,
                     const PlacedBatch& batch, const at::Tensor& kv, const at::Tensor& out, const at::Tensor& logsumexp,
                     at::Tensor& dqkv, at::Tensor& dq_norm, at::Tensor& dk_norm);
void copy_kv_blocks(std::span<at::Tensor> layers, std::span<const kernels::BlockCopy> copies);
void swiglu(const at::Tensor& gate_up, at::Tensor& out);
void swiglu_backward(const at::Tensor& dout, const at::Tensor& gate_up, at::Tensor& dgate_up, at::Tensor& out);
void target_logprobs(const at::Tensor& logits, std::span<const float> inverse,
                     std::span<const kernels::LogitTarget> targets, bool with_entropy, kernels::LogitStats& stats,
                     std::span<kernels::TargetStats> out);
at::Tensor target_logprobs_backward(at::Tensor& logits, std::span<const float> inverse,
                                    std::span<const kernels::LogitTarget> targets, const kernels::LogitStats& stats,
                                    std::span<const kernels::TargetSlopes> slopes);
void draw(const at::Tensor& logits, int64_t num_drawable, std::span<const kernels::DrawRow> rows,
          std::span<kernels::Drawn> out);
std::unique_ptr<kernels::DecodeGraph> record_decode(const kernels::DecodeGraphShape& shape,
                                                    const std::function<at::Tensor(const PlacedBatch&)>& pass);
void adamw(const kernels::AdamW& settings, std::span<const kernels::AdamWTensors> all);
void spread_rounded(at::Tensor& values, uint64_t key);
std::vector<std::vector<double>> block_squares(std::span<const at::Tensor> all);
void accumulate(const at::Tensor& to, const at::Tensor& from);

}  // namespace tandem::cuda
