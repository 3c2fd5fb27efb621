// The parts of attend() and attend_backward() on the CPU.
#pragma once

#include "kernels/kernels.h"

namespace tandem::kernels {

// qkv_TN is cut into heads; q and k are normalised and rotated.
void split_qkv(const at::Tensor& qkv_TN, const QkvTransform& transform, std::span<const int32_t> positions,
               at::Tensor& q_THD, at::Tensor& k_TKD, at::Tensor& v_TKD);
// Sets dqkv_TN; adds into dq_norm_D and dk_norm_D.
void split_qkv_backward(const at::Tensor& dq_THD, const at::Tensor& dk_TKD, const at::Tensor& dv_TKD,
                        const at::Tensor& qkv_TN, const QkvTransform& transform, std::span<const int32_t> positions,
                        at::Tensor& dqkv_TN, at::Tensor& dq_norm_D, at::Tensor& dk_norm_D);

void write_kv(const at::Tensor& k_TKD, const at::Tensor& v_TKD, std::span<const SlotWrite> writes, at::Tensor& kv);
void attention(const at::Tensor& q_THD, const at::Tensor& kv, const AttentionBatch& batch, at::Tensor& out_THD,
               at::Tensor& logsumexp_TH);
// Sets dq_THD, dk_TKD, dv_TKD. `writes` is what filled `kv`: a token written twice gets both gradients.
void attention_backward(const at::Tensor& dout_THD, const at::Tensor& q_THD, const at::Tensor& kv,
                        const AttentionBatch& batch, std::span<const SlotWrite> writes, const at::Tensor& out_THD,
                        const at::Tensor& logsumexp_TH, at::Tensor& dq_THD, at::Tensor& dk_TKD, at::Tensor& dv_TKD);

}  // namespace tandem::kernels
