#include <cmath>

#include "kernels/cuda/attention.h"
#include "kernels/cuda/batch.h"
#include "kernels/cuda/device_table.h"
#include "kernels/cuda/qkv.h"
#include "kernels/cuda/torch_args.h"

namespace tandem::cuda {
namespace {

const AttentionDevice& device() {
  static const AttentionDevice found = [] {
    AttentionDevice d{};
    launched(attention_device(d), "attention_device");
    return d;
  }();
  return found;
}

AttentionShape attention_shape(const kernels::HeadShape& h) {
  const AttentionShape shape{static_cast<int32_t>(h.num_heads), static_cast<int32_t>(h.num_kv_heads),
                             static_cast<int32_t>(h.head_dim), 1.0f / std::sqrt(static_cast<float>(h.head_dim))};
  check(is_supported(shape), "the GPU's attention takes head_dim 64 or 128 and up to 8 query heads a key head");
  return shape;
}

QkvTransform transform_of(const kernels::QkvTransform& t) {
  return {half_or_null(t.q_norm_D), half_or_null(t.k_norm_D), t.eps, single(t.cos_PD2), single(t.sin_PD2)};
}

QkvShape qkv_shape(int64_t tokens, const kernels::HeadShape& h) {
  return {tokens, h.num_heads, h.num_kv_heads, h.head_dim};
}

struct Heads {
  at::Tensor q, k, v;
};
Heads empty_heads(int64_t tokens, const kernels::HeadShape& h, const at::Tensor& like) {
  return {at::empty({tokens, h.num_heads, h.head_dim}, like.options()),
          at::empty({tokens, h.num_kv_heads, h.head_dim}, like.options()),
          at::empty({tokens, h.num_kv_heads, h.head_dim}, like.options())};
}

Heads split(const at::Tensor& qkv, const kernels::QkvTransform& t, const Batch& batch) {
  Heads heads = empty_heads(qkv.size(0), t.heads, qkv);
  const QkvOutputs outputs{half(heads.q), half(heads.k), half(heads.v), {}, nullptr};
  launched(split_qkv(half(qkv), qkv_shape(qkv.size(0), t.heads), transform_of(t), batch.positions, outputs, stream()),
           "split_qkv");
  return heads;
}

void attend_paged(const at::Tensor& qkv, const kernels::QkvTransform& t, const Batch& batch, at::Tensor& kv,
                  at::Tensor& out, at::Tensor& logsumexp) {
  const int64_t tokens = qkv.size(0), width = t.heads.num_heads * t.heads.head_dim;
  const int64_t page_stride = kv.numel() / kv.size(0);
  at::Tensor q = at::empty({tokens, t.heads.num_heads, t.heads.head_dim}, qkv.options());
  const QkvOutputs outputs{half(q), nullptr, nullptr, {half(kv), page_stride}, batch.slots};
  launched(split_qkv(half(qkv), qkv_shape(tokens, t.heads), transform_of(t), batch.positions, outputs, stream()),
           "split_qkv");
  const AttentionShape shape = attention_shape(t.heads);
  const PagedKv pages{half(kv), page_stride, batch.page_table};
  if (batch.num_decode > 0) {
    const auto workspace = device_bytes(decode_attention_workspace(shape, batch.decode.slots));
    launched(decode_attention({shape, half(q), width, pages, batch.decode_items, batch.decode_members,
                               batch.decode_slots, batch.decode_counts, batch.decode.items, batch.num_decode,
                               batch.decode.slots, workspace.data_ptr(), half(out), single(logsumexp)},
                              device(), stream()),
             "decode_attention");
  }
  if (batch.num_tiles > 0)
    launched(paged_attention({shape, half(q), width, pages, batch.tiles, batch.num_tiles, half(out), single(logsumexp)},
                             device(), stream()),
             "paged_attention");
}

}  // namespace

void attend(const at::Tensor& qkv, const kernels::QkvTransform& t, const PlacedBatch& placed, at::Tensor& kv,
            at::Tensor& out, at::Tensor& logsumexp) {
  const Batch& batch = on_gpu(placed);
  if (placed.layout == kernels::KeyLayout::kPaged) return attend_paged(qkv, t, batch, kv, out, logsumexp);
  const Heads heads = split(qkv, t, batch);
  launched(
      packed_attention({attention_shape(t.heads), half(heads.q), half(heads.k), half(heads.v), heads.q.stride(0),
                        heads.k.stride(0), batch.sequences, batch.tiles, batch.num_tiles, half(out), single(logsumexp)},
                       device(), stream()),
      "packed_attention");
}

void attend_backward(const at::Tensor& dout, const at::Tensor& qkv, const kernels::QkvTransform& t,
                     const PlacedBatch& placed, const at::Tensor&, const at::Tensor& out, const at::Tensor& logsumexp,
                     at::Tensor& dqkv, at::Tensor& dq_norm, at::Tensor& dk_norm) {
  const Batch& batch = on_gpu(placed);
  const Heads heads = split(qkv, t, batch), d = empty_heads(qkv.size(0), t.heads, qkv);
  const AttentionShape shape = attention_shape(t.heads);
  const auto rows = static_cast<int32_t>(qkv.size(0));
  const auto workspace = device_bytes(packed_attention_backward_workspace(shape, rows));
  PackedAttentionBackward args{};
  args.shape = shape;
  args.q_THD = half(heads.q), args.k_TKD = half(heads.k), args.v_TKD = half(heads.v);
  args.out_THD = half(out), args.dout_THD = half(dout), args.logsumexp_TH = single(logsumexp);
  args.q_stride = heads.q.stride(0), args.kv_stride = heads.k.stride(0), args.rows = rows;
  args.sequences = batch.sequences, args.query_tiles = batch.tiles, args.num_query_tiles = batch.num_tiles;
  args.key_tiles = batch.key_tiles, args.key_runs = batch.key_runs, args.num_key_tiles = batch.num_key_tiles;
  args.workspace = workspace.data_ptr();
  args.dq_THD = half(d.q), args.dk_TKD = half(d.k), args.dv_TKD = half(d.v);
  args.dq_stride = d.q.stride(0), args.dkv_stride = d.k.stride(0);
  launched(packed_attention_backward(args, device(), stream()), "packed_attention_backward");
  const QkvShape qkv_size = qkv_shape(rows, t.heads);
  const auto scratch = device_bytes(static_cast<int64_t>(split_qkv_backward_workspace_bytes(qkv_size)));
  launched(
      split_qkv_backward(half(d.q), half(d.k), half(d.v), half(qkv), qkv_size, transform_of(t), batch.positions,
                         half(dqkv), single_or_null(dq_norm), single_or_null(dk_norm), scratch.data_ptr(), stream()),
      "split_qkv_backward");
}

void copy_kv_blocks(std::span<at::Tensor> layers, std::span<const kernels::BlockCopy> copies) {
  std::vector<bf16*> addresses;
  for (const at::Tensor& layer : layers) addresses.push_back(half(layer));
  std::vector<int32_t> from, to;
  for (const auto& copy : copies) from.push_back(copy.from), to.push_back(copy.to);
  Upload upload;
  const size_t at_layers = upload.add(addresses), at_from = upload.add(from), at_to = upload.add(to);
  const at::Tensor buffer = upload.send();
  const int64_t size = layers[0].numel() / layers[0].size(0);
  launched(copy_kv_blocks(at_offset<bf16*>(buffer, at_layers), static_cast<int64_t>(layers.size()), size, size,
                          at_offset<int32_t>(buffer, at_from), at_offset<int32_t>(buffer, at_to),
                          static_cast<int64_t>(copies.size()), stream()),
           "copy_kv_blocks");
}

}  // namespace tandem::cuda
