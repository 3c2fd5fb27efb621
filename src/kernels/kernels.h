// The whole device surface on one page. Each op's <op>.cc checks its arguments and holds the CPU implementation, which
// is also the reference for other devices.
//
// Shapes: T tokens, E hidden size, N output features, F intermediate size, H query heads, K key/value heads, D head
// dim, V vocabulary, R rows of logits. Tensors are contiguous; floats are fp32 on the CPU; ids are int32.
// Row rule: a row of every forward output depends on its own row of inputs (and the weights) alone, bit for bit.
// `_backward` functions ADD into gradients named d<input>, unless said otherwise; their sums run in a fixed order.
// Errors: a wrong shape or dtype is an internal error. Thread-safe on disjoint outputs.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

#include "kernels/kv_layout.h"

namespace tandem::kernels {

// Memory. `empty` leaves the values unset.
at::Tensor empty(at::IntArrayRef shape);
at::Tensor zeros(at::IntArrayRef shape);

// out_TE = weight_VE[ids_T]
void embedding(std::span<const int32_t> ids, const at::Tensor& weight_VE, at::Tensor& out_TE);
void embedding_backward(std::span<const int32_t> ids, const at::Tensor& dout_TE, at::Tensor& dweight_VE);

// out = x / sqrt(mean(x²) + eps) · weight (Zhang & Sennrich 2019, arXiv:1910.07467)
void rms_norm(const at::Tensor& x_TE, const at::Tensor& weight_E, float eps, at::Tensor& out_TE);
void rms_norm_backward(const at::Tensor& dout_TE, const at::Tensor& x_TE, const at::Tensor& weight_E, float eps,
                       at::Tensor& dx_TE, at::Tensor& dweight_E);

// out_TN = x_TE · weight_NEᵀ + bias_N; an undefined bias is none.
void linear(const at::Tensor& x_TE, const at::Tensor& weight_NE, const at::Tensor& bias_N, at::Tensor& out_TN);
void linear_backward_input(const at::Tensor& dout_TN, const at::Tensor& weight_NE, at::Tensor& dx_TE);
void linear_backward_weight(const at::Tensor& dout_TN, const at::Tensor& x_TE, at::Tensor& dweight_NE,
                            at::Tensor& dbias_N);

// x += y
void add(at::Tensor& x_TE, const at::Tensor& y_TE);

// What follows the fused projection: qkv_TN with N = (H + 2K)·D is cut into heads; q and k are normalised over D where
// the model has QK-norm (undefined weights: none) and rotated (Su et al. 2021, arXiv:2104.09864, halves paired as in
// Hugging Face) by cos/sin_PD2 at each token's position.
struct HeadShape {
  int64_t num_heads, num_kv_heads, head_dim;
};
struct QkvTransform {
  HeadShape heads;
  at::Tensor q_norm_D, k_norm_D;  // undefined without QK-norm
  float eps;
  at::Tensor cos_PD2, sin_PD2;
};
void split_qkv(const at::Tensor& qkv_TN, const QkvTransform& transform, std::span<const int32_t> positions,
               at::Tensor& q_THD, at::Tensor& k_TKD, at::Tensor& v_TKD);
// Sets dqkv_TN; adds into dq_norm_D and dk_norm_D.
void split_qkv_backward(const at::Tensor& dq_THD, const at::Tensor& dk_TKD, const at::Tensor& dv_TKD,
                        const at::Tensor& qkv_TN, const QkvTransform& transform, std::span<const int32_t> positions,
                        at::Tensor& dqkv_TN, at::Tensor& dq_norm_D, at::Tensor& dk_norm_D);

// out_TF = silu(gate) · up, with gate_up_T2F = [gate | up] (Shazeer 2020, arXiv:2002.05202)
void swiglu(const at::Tensor& gate_up_T2F, at::Tensor& out_TF);
// Sets dgate_up.
void swiglu_backward(const at::Tensor& dout_TF, const at::Tensor& gate_up_T2F, at::Tensor& dgate_up_T2F);

// Keys and values lie in blocks of kKvBlock absolute positions (kv_layout.h): a paged cache in rollout, a scratch of
// the same form in training. One kernel reads both, so prefill, decode and training give the same bits.
void write_kv(const at::Tensor& k_TKD, const at::Tensor& v_TKD, std::span<const SlotWrite> writes, at::Tensor& kv);
void copy_kv_block(at::Tensor& kv, int32_t from, int32_t to);
void attention(const at::Tensor& q_THD, const at::Tensor& kv, const AttentionBatch& batch, at::Tensor& out_THD,
               at::Tensor& logsumexp_TH);
// Sets dq_THD, dk_TKD, dv_TKD. `writes` is what filled `kv`: a token written twice gets both gradients.
void attention_backward(const at::Tensor& dout_THD, const at::Tensor& q_THD, const at::Tensor& kv,
                        const AttentionBatch& batch, std::span<const SlotWrite> writes, const at::Tensor& out_THD,
                        const at::Tensor& logsumexp_TH, at::Tensor& dq_THD, at::Tensor& dk_TKD, at::Tensor& dv_TKD);

// Statistics of softmax(logits · inv_temperature) for a row; the only way in which a log-prob is computed anywhere:
// log p(id) = logits[id] · inv_temperature − max − log_sum.
struct RowStats {
  float max = 0;      // of the scaled logits
  float log_sum = 0;  // log Σ exp(scaled − max)
  float entropy = 0;  // in nats; only where asked for
};
RowStats row_stats(std::span<const float> logits, float inv_temperature, bool with_entropy);
float logprob(std::span<const float> logits, int32_t id, float inv_temperature, const RowStats& stats);

// The first id at which the running sum of softmax(logits · inv_temperature) passes `uniform` (in (0, 1)).
int32_t invert_distribution(std::span<const float> logits, float inv_temperature, const RowStats& stats,
                            double uniform);

// Turns a row of logits into d loss / d logits, given d loss / d log p(id) for some ids and d loss / d entropy.
struct TargetGradient {
  int32_t id;
  float dlogprob;
};
void logits_backward(std::span<float> logits, float inv_temperature, const RowStats& stats,
                     std::span<const TargetGradient> targets, float dentropy);

// One AdamW update (Loshchilov & Hutter 2019, arXiv:1711.05101) of fp32 weights; decay is decoupled and scaled by lr.
struct AdamW {
  double lr, beta1, beta2, eps, weight_decay;
  int64_t step;           // 1 for the first update
  double gradient_scale;  // clipping
};
void adamw(const AdamW& settings, const at::Tensor& gradient, at::Tensor& weight, at::Tensor& moment1,
           at::Tensor& moment2);
// Σ x², over fixed blocks in fp64.
double sum_of_squares(const at::Tensor& x);

}  // namespace tandem::kernels
