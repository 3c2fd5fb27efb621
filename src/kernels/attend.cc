#include <cstring>

#include "kernels/attention.h"
#include "kernels/device_ops.h"
#include "kernels/tensor_view.h"

namespace tandem::kernels {
namespace {

struct Heads {
  at::Tensor q_THD, k_TKD, v_TKD;
};

Heads empty_heads(int64_t tokens, const HeadShape& shape) {
  return {empty({tokens, shape.num_heads, shape.head_dim}), empty({tokens, shape.num_kv_heads, shape.head_dim}),
          empty({tokens, shape.num_kv_heads, shape.head_dim})};
}

}  // namespace

PlacedBatch place(const TokenBatch& batch, KeyLayout layout, const HeadShape& heads, const at::Tensor& like) {
  if (on_device(like)) return device_ops().place(batch, layout, heads, like);
  return {batch, layout, nullptr};
}

at::Tensor packed_kv(const PlacedBatch& batch, const HeadShape& heads, const at::Tensor& like) {
  if (on_device(like)) return {};
  return empty({batch.tokens.num_blocks, 2, heads.num_kv_heads, heads.head_dim * kKvBlock});
}

void attend(const at::Tensor& qkv, const QkvTransform& transform, const PlacedBatch& batch, at::Tensor& kv,
            at::Tensor& out, at::Tensor& logsumexp) {
  if (on_device(qkv)) return device_ops().attend(qkv, transform, batch, kv, out, logsumexp);
  Heads heads = empty_heads(qkv.size(0), transform.heads);
  split_qkv(qkv, transform, batch.tokens.positions, heads.q_THD, heads.k_TKD, heads.v_TKD);
  write_kv(heads.k_TKD, heads.v_TKD, batch.tokens.writes, kv);
  attention(heads.q_THD, kv, batch.tokens.attention, out, logsumexp);
}

void attend_backward(const at::Tensor& dout, const at::Tensor& qkv, const QkvTransform& transform,
                     const PlacedBatch& batch, const at::Tensor& kv, const at::Tensor& out, const at::Tensor& logsumexp,
                     at::Tensor& dqkv, at::Tensor& dq_norm, at::Tensor& dk_norm) {
  check(batch.layout == KeyLayout::kPacked, "only packed batches have gradients");
  if (on_device(qkv))
    return device_ops().attend_backward(dout, qkv, transform, batch, kv, out, logsumexp, dqkv, dq_norm, dk_norm);
  Heads heads = empty_heads(qkv.size(0), transform.heads), d = empty_heads(qkv.size(0), transform.heads);
  split_qkv(qkv, transform, batch.tokens.positions, heads.q_THD, heads.k_TKD, heads.v_TKD);
  attention_backward(dout, heads.q_THD, kv, batch.tokens.attention, batch.tokens.writes, out, logsumexp, d.q_THD,
                     d.k_TKD, d.v_TKD);
  split_qkv_backward(d.q_THD, d.k_TKD, d.v_TKD, qkv, transform, batch.tokens.positions, dqkv, dq_norm, dk_norm);
}

void copy_kv_blocks(std::span<at::Tensor> layers, std::span<const BlockCopy> copies) {
  if (layers.empty() || copies.empty()) return;
  if (on_device(layers[0])) return device_ops().copy_kv_blocks(layers, copies);
  for (at::Tensor& layer : layers) {
    float* data = f32(layer);
    const int64_t size = layer.numel() / layer.size(0);
    for (const auto& [from, to] : copies)
      std::memcpy(data + to * size, data + from * size, static_cast<size_t>(size) * sizeof(float));
  }
}

}  // namespace tandem::kernels
