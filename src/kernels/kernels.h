// The whole device surface on one page. Each op's <op>.cc checks its arguments, hands tensors of another device to
// device_ops.h, and holds the CPU implementation, which is also the reference for other devices.
//
// Shapes: T tokens, E hidden size, N output features, F intermediate size, H query heads, K key/value heads, D head
// dim, V vocabulary, R rows of logits. Tensors are contiguous. On the CPU all floats are fp32; on a GPU activations and
// weights are bf16, and logits, logsumexp, the gradients of weights, masters and moments fp32. Ids are int32.
// Row rule: a row of every forward output depends on its own row of inputs (and the weights) alone, bit for bit.
// `_backward` functions ADD into gradients of weights, named dweight, and SET those of activations, unless said
// otherwise; their sums run in a fixed order. The gradient of a weight that is left undefined is not computed.
// Errors: a wrong shape or dtype is an internal error. Thread-safe on disjoint outputs.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "kernels/token_batch.h"

namespace tandem::kernels {

// Memory, fp32 on the CPU or of the dtype and device of `like`. `empty` leaves the values unset.
at::Tensor empty(at::IntArrayRef shape);
at::Tensor zeros(at::IntArrayRef shape);
at::Tensor empty(at::IntArrayRef shape, const at::Tensor& like);
at::Tensor empty_fp32(at::IntArrayRef shape, const at::Tensor& like);  // on the device of `like`

// Waits until all work on the device of `like` is done.
void synchronize(const at::Tensor& like);
// Bytes that tensors hold, that the allocator holds, now and at most so far; and all the device has.
struct DeviceMemory {
  int64_t allocated = 0, reserved = 0, peak_allocated = 0, peak_reserved = 0, total = 0;
};
DeviceMemory device_memory(const at::Tensor& like);  // zeros on the CPU

// Bytes of the host, which may lie in a mapped file, to tensors of a device, by several threads through pinned memory.
// All are there when it returns.
struct HostCopy {
  std::span<const std::byte> from;
  at::Tensor to;  // contiguous, of as many bytes
};
void upload(std::span<const HostCopy> copies);

struct HeadShape {
  int64_t num_heads, num_kv_heads, head_dim;
};

// The batch on the device of `like`.
PlacedBatch place(const TokenBatch& batch, KeyLayout layout, const HeadShape& heads, const at::Tensor& like);

// out_TE = weight_VE[ids_T]
void embedding(const PlacedBatch& batch, const at::Tensor& weight_VE, at::Tensor& out_TE);
void embedding_backward(const PlacedBatch& batch, const at::Tensor& dout_TE, at::Tensor& dweight_VE);

// Some rows of x, in the given order; and their gradients added back (a row may be named several times).
void gather_rows(const at::Tensor& x_TE, std::span<const int32_t> rows, at::Tensor& out_RE);
void gather_rows_backward(const at::Tensor& dout_RE, std::span<const int32_t> rows, at::Tensor& dx_TE);

// out = x / sqrt(mean(x²) + eps) · weight (Zhang & Sennrich 2019, arXiv:1910.07467)
void rms_norm(const at::Tensor& x_TE, const at::Tensor& weight_E, float eps, at::Tensor& out_TE);
// x += y, then out = norm(x).
void add_rms_norm(at::Tensor& x_TE, const at::Tensor& y_TE, const at::Tensor& weight_E, float eps, at::Tensor& out_TE);
// Adds into dx.
void rms_norm_backward(const at::Tensor& dout_TE, const at::Tensor& x_TE, const at::Tensor& weight_E, float eps,
                       at::Tensor& dx_TE, at::Tensor& dweight_E);

// out_TN = x_TE · weight_NEᵀ + bias_N; an undefined bias is none. Of bf16 inputs, out may be fp32 (logits).
void linear(const at::Tensor& x_TE, const at::Tensor& weight_NE, const at::Tensor& bias_N, at::Tensor& out_TN);
// A piece of the sum over the inner dim, columns [first, first + count) of both, without bias; on the CPU.
void linear_piece(const at::Tensor& x_TK, const at::Tensor& weight_NK, int64_t first, int64_t count,
                  at::Tensor& out_TN);
void linear_backward_input(const at::Tensor& dout_TN, const at::Tensor& weight_NE, at::Tensor& dx_TE);
void linear_backward_weight(const at::Tensor& dout_TN, const at::Tensor& x_TE, at::Tensor& dweight_NE,
                            at::Tensor& dbias_N);

// x += y
void add(at::Tensor& x_TE, const at::Tensor& y_TE);

// Columns [first, first + M) of a wider matrix: x[:, columns] += factor · y, and y = factor · x[:, columns].
void add_to_columns(at::Tensor& x_TN, int64_t first, float factor, const at::Tensor& y_TM);
void take_columns(const at::Tensor& x_TN, int64_t first, float factor, at::Tensor& y_TM);

// What follows the fused projection: qkv_TN with N = (H + 2K)·D is cut into heads; q and k are normalised over D where
// the model has QK-norm (undefined weights: none) and rotated (Su et al. 2021, arXiv:2104.09864, halves paired as in
// Hugging Face) by cos/sin_PD2 at each token's position.
struct QkvTransform {
  HeadShape heads;
  at::Tensor q_norm_D, k_norm_D;  // undefined without QK-norm
  float eps;
  at::Tensor cos_PD2, sin_PD2;
};
// Keys and values lie in blocks of kKvBlock absolute positions (kv_layout.h). Paged, they go to `kv`, which outlives
// the pass; packed, to a scratch that packed_kv() makes (undefined where a device needs none). Sums over keys are cut
// at absolute positions in both, so prefill, decode and training give the same bits.
at::Tensor packed_kv(const PlacedBatch& batch, const HeadShape& heads, const at::Tensor& like);
void attend(const at::Tensor& qkv_TN, const QkvTransform& transform, const PlacedBatch& batch, at::Tensor& kv,
            at::Tensor& out_THD, at::Tensor& logsumexp_TH);
// Packed only. Adds into dq_norm_D and dk_norm_D.
void attend_backward(const at::Tensor& dout_THD, const at::Tensor& qkv_TN, const QkvTransform& transform,
                     const PlacedBatch& batch, const at::Tensor& kv, const at::Tensor& out_THD,
                     const at::Tensor& logsumexp_TH, at::Tensor& dqkv_TN, at::Tensor& dq_norm_D, at::Tensor& dk_norm_D);
struct BlockCopy {
  int32_t from, to;
};
void copy_kv_blocks(std::span<at::Tensor> layers, std::span<const BlockCopy> copies);

// out_TF = silu(gate) · up, with gate_up_T2F = [gate | up] (Shazeer 2020, arXiv:2002.05202)
void swiglu(const at::Tensor& gate_up_T2F, at::Tensor& out_TF);
// Gives the forward's output again, which then need not be kept.
void swiglu_backward(const at::Tensor& dout_TF, const at::Tensor& gate_up_T2F, at::Tensor& dgate_up_T2F,
                     at::Tensor& out_TF);

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

// The log-probs of targets among rows of logits, and the way back. Targets ascend by row; a GPU takes one a row.
struct LogitTarget {
  int32_t row, id;
};
struct TargetStats {
  float logprob = 0;
  float entropy = 0;  // of the target's row, in nats; 0 unless asked for
};
struct LogitStats {  // of every row, kept for the way back
  std::vector<RowStats> rows;
  at::Tensor device;
};
void target_logprobs(const at::Tensor& logits_RV, std::span<const float> inv_temperature_R,
                     std::span<const LogitTarget> targets, bool with_entropy, LogitStats& stats,
                     std::span<TargetStats> out);
struct TargetSlopes {  // d loss / d logprob and d loss / d entropy of a target
  double logprob = 0;
  double entropy = 0;
};
// Uses up the logits' memory: returns d loss / d logits, in the dtype of activations.
at::Tensor target_logprobs_backward(at::Tensor& logits_RV, std::span<const float> inv_temperature_R,
                                    std::span<const LogitTarget> targets, const LogitStats& stats,
                                    std::span<const TargetSlopes> slopes);

// Draws from rows of logits that lie on a device, as rollout/sampler.h does on the CPU.
struct DrawRow {
  uint64_t philox_key, prompt_id;
  uint32_t sample_index, position;  // tokens of the response drawn before
  float inv_temperature;            // 1 for a greedy row
  bool greedy;
  int32_t top_k;  // ≤ 0: off
  double top_p, min_p;
  std::vector<int32_t> barred;  // ids that may not be drawn, at most kMaxBarredIds
};
constexpr size_t kMaxBarredIds = 16;
struct Drawn {
  int32_t id;  // negative: the logits are not finite (−1), or every id is barred (−2)
  float logprob, entropy;
};
void draw(const at::Tensor& logits_RV, int64_t num_drawable, std::span<const DrawRow> rows, std::span<Drawn> out);

// A pass of one token a sequence, from its ids to the drawn tokens, recorded on the device once and replayed: for few
// sequences, launching a pass costs the host more than computing it takes.
class DecodeGraph {
 public:
  virtual ~DecodeGraph() = default;
  // `batch`: at most `sequences` spans of one token, in order; one row of `rows` and `out` for each.
  virtual void replay(const TokenBatch& batch, std::span<const DrawRow> rows, std::span<Drawn> out) = 0;
};
struct DecodeGraphShape {
  HeadShape heads;
  int64_t sequences, blocks_per_sequence, num_drawable;
  bool narrowing;  // some row may use top_k, top_p or min_p
};
// `pass` makes fp32 logits, one row a token; it is run once as it is and once more to be recorded. What it reads beside
// the batch must stay where it is.
std::unique_ptr<DecodeGraph> record_decode(const DecodeGraphShape& shape,
                                           const std::function<at::Tensor(const PlacedBatch&)>& pass);

// One AdamW update (Loshchilov & Hutter 2019, arXiv:1711.05101) of fp32 weights; decay is decoupled and scaled by lr.
struct AdamW {
  double lr, beta1, beta2, eps, weight_decay;
  int64_t step;           // 1 for the first update
  double gradient_scale;  // clipping
};
struct AdamWTensors {
  at::Tensor gradient, weight, moment1, moment2;
  at::Tensor compute_weight;  // gets the updated weight in its own dtype; undefined: none
};
void adamw(const AdamW& settings, std::span<const AdamWTensors> all);
// Moves each fp32 value that bf16 holds exactly to a place drawn evenly from all that round to it; it is a function of
// (key, index). Zeros and other values stay. Masters that start on bf16's grid would pass none of their first updates
// on to the weights that compute: all of them would have half a step to go. Spread, as many cross it as should.
void spread_rounded(at::Tensor& values, uint64_t key);
// Σ x², over fixed blocks in fp64.
double sum_of_squares(std::span<const at::Tensor> all);
// The sums of a tensor's blocks of kSquareBlock values, which sum_of_squares adds up in order; on the CPU.
constexpr int64_t kSquareBlock = 4096;
std::vector<double> block_squares(const at::Tensor& tensor);

}  // namespace tandem::kernels
