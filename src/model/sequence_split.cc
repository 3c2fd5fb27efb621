#include "model/sequence_split.h"

#include <algorithm>
#include <vector>

#include "kernels/tensor_view.h"
#include "parallel/collectives.h"

namespace tandem {
namespace {

std::span<std::byte> memory_of(const at::Tensor& matrix, const Range& rows) {
  const int64_t width = matrix.size(1);
  return bytes_of(kernels::f32(matrix) + rows.begin * width, static_cast<size_t>(rows.size() * width));
}

int64_t queries_a_key(const kernels::HeadShape& heads) { return heads.num_heads / heads.num_kv_heads; }

// q, k and v of a key head lie apart in the fused matrix.
template <class Columns>
std::vector<Columns> qkv_columns(const kernels::HeadShape& heads) {
  const int64_t q = heads.num_heads * heads.head_dim, k = heads.num_kv_heads * heads.head_dim;
  return {{0, queries_a_key(heads) * heads.head_dim}, {q, heads.head_dim}, {q + k, heads.head_dim}};
}
template <class Columns>
std::vector<Columns> q_columns(const kernels::HeadShape& heads) {
  return {{0, queries_a_key(heads) * heads.head_dim}};
}

}  // namespace

Range SequenceSplit::rows(int64_t tokens) const { return sharded_range(tokens, size(), ranks_->rank(), size()); }

Range SequenceSplit::key_heads(int64_t all, int rank) const { return sharded_range(all, all, rank, size()); }

kernels::HeadShape SequenceSplit::own_heads(const kernels::HeadShape& all) const {
  const int64_t keys = key_heads(all.num_kv_heads, ranks_->rank()).size();
  return {keys * queries_a_key(all), keys, all.head_dim};
}

void SequenceSplit::collect(std::span<double> values) { all_reduce(*ranks_, "log-probs of all tokens", values); }

int64_t SequenceSplit::width(std::span<const Columns> columns, int64_t keys, int rank) const {
  int64_t sum = 0;
  for (const Columns& c : columns) sum += key_heads(keys, rank).size() * c.per_key_head;
  return sum;
}

// From this rank's tokens and all heads to all tokens and this rank's heads. What arrives lies in one piece.
at::Tensor SequenceSplit::to_heads(const at::Tensor& rows, std::span<const Columns> columns, int64_t keys,
                                   int64_t tokens) {
  const int64_t count = rows.size(0), pitch = rows.size(1);
  at::Tensor heads = kernels::empty({tokens, width(columns, keys, ranks_->rank())}, rows);
  std::vector<at::Tensor> leaving;
  std::vector<SendPart> sends;
  std::vector<ReceivePart> receives;
  for (int peer = 0; peer < size(); ++peer) {
    const Range theirs = key_heads(keys, peer);
    leaving.push_back(kernels::empty({count, width(columns, keys, peer)}, rows));
    float* to = kernels::f32(leaving.back());
    for (int64_t row = 0; row < count; ++row)
      for (const Columns& c : columns)
        to = std::copy_n(kernels::f32(rows) + row * pitch + c.first + theirs.begin * c.per_key_head,
                         theirs.size() * c.per_key_head, to);
    sends.push_back({peer, memory_of(leaving.back(), {0, count})});
    receives.push_back({peer, memory_of(heads, sharded_range(tokens, size(), peer, size()))});
  }
  ranks_->exchange("all_to_all to heads", sends, receives);
  return heads;
}

// The way back.
at::Tensor SequenceSplit::to_rows(const at::Tensor& heads, std::span<const Columns> columns, int64_t keys) {
  const int64_t tokens = heads.size(0), count = rows(tokens).size();
  int64_t pitch = 0;
  for (const Columns& c : columns) pitch += keys * c.per_key_head;
  at::Tensor out = kernels::empty({count, pitch}, heads);
  std::vector<at::Tensor> arriving;
  std::vector<SendPart> sends;
  std::vector<ReceivePart> receives;
  for (int peer = 0; peer < size(); ++peer) {
    arriving.push_back(kernels::empty({count, width(columns, keys, peer)}, heads));
    sends.push_back({peer, memory_of(heads, sharded_range(tokens, size(), peer, size()))});
    receives.push_back({peer, memory_of(arriving.back(), {0, count})});
  }
  ranks_->exchange("all_to_all to tokens", sends, receives);
  for (int peer = 0; peer < size(); ++peer) {
    const Range theirs = key_heads(keys, peer);
    const float* from = kernels::f32(arriving[static_cast<size_t>(peer)]);
    for (int64_t row = 0; row < count; ++row)
      for (const Columns& c : columns) {
        const int64_t length = theirs.size() * c.per_key_head;
        std::copy_n(from, length, kernels::f32(out) + row * pitch + c.first + theirs.begin * c.per_key_head);
        from += length;
      }
  }
  return out;
}

SequenceSplit::Attended SequenceSplit::attend(const at::Tensor& qkv, const kernels::QkvTransform& transform,
                                              const kernels::PlacedBatch& batch) {
  const kernels::HeadShape all = transform.heads;
  kernels::QkvTransform own = transform;
  own.heads = own_heads(all);
  const int64_t tokens = batch.tokens.num_tokens();
  Attended out;
  out.qkv_TN = to_heads(qkv, qkv_columns<Columns>(all), all.num_kv_heads, tokens);
  out.kv = kernels::packed_kv(batch, own.heads, qkv);
  out.heads_THD = kernels::empty({tokens, own.heads.num_heads, own.heads.head_dim}, qkv);
  out.logsumexp_TH = kernels::empty_fp32({tokens, own.heads.num_heads}, qkv);
  kernels::attend(out.qkv_TN, own, batch, out.kv, out.heads_THD, out.logsumexp_TH);
  out.rows_RQ = to_rows(out.heads_THD.view({tokens, -1}), q_columns<Columns>(all), all.num_kv_heads);
  return out;
}

at::Tensor SequenceSplit::attend_backward(const at::Tensor& dout, const Attended& forward,
                                          const kernels::QkvTransform& transform, const kernels::PlacedBatch& batch,
                                          at::Tensor& dq_norm, at::Tensor& dk_norm) {
  const kernels::HeadShape all = transform.heads;
  kernels::QkvTransform own = transform;
  own.heads = own_heads(all);
  const at::Tensor dheads = to_heads(dout, q_columns<Columns>(all), all.num_kv_heads, batch.tokens.num_tokens());
  at::Tensor dqkv = kernels::empty(forward.qkv_TN.sizes(), dout);
  kernels::attend_backward(dheads.view(forward.heads_THD.sizes()), forward.qkv_TN, own, batch, forward.kv,
                           forward.heads_THD, forward.logsumexp_TH, dqkv, dq_norm, dk_norm);
  return to_rows(dqkv, qkv_columns<Columns>(all), all.num_kv_heads);
}

}  // namespace tandem
