// Attention backward (the recomputing form of Dao et al. 2022, arXiv:2205.14135): probabilities come back from the
// saved logsumexp. Gradients of keys and values gather in blocks of the same layout, then go to the tokens that wrote
// them.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/attention.h"
#include "kernels/attention_rows.h"
#include "kernels/parallel_for.h"

namespace tandem::kernels {
namespace {

using simd::F8;

// [rows][cols] -> [cols][rows]
void transpose(const float* in, int64_t rows, int64_t cols, float* out) {
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < cols; ++j) out[j * rows + i] = in[i * cols + j];
}

// The keys of a chunk row by row, its values column by column: the forms the backward reads.
struct ChunkForms {
  std::vector<float> key_rows, value_columns;
};

struct BackwardHead {
  const KvView& kv;
  const KvView& dkv;
  const float *q, *dout, *lse, *delta;
  float* dq;
  int64_t heads, group, dim, kv_head;
  float scale;

  // One chunk of one span: all rows that see it, in order.
  void chunk(const QuerySpan& span, int64_t index, int32_t block, ChunkForms& forms) const {
    const float* keys = kv.keys(block, kv_head);
    transpose(keys, dim, kKvBlock, forms.key_rows.data());
    transpose(kv.values(block, kv_head), kKvBlock, dim, forms.value_columns.data());
    float *dkeys = dkv.keys(block, kv_head), *dvalues = dkv.values(block, kv_head);
    const int64_t begin = index * kKvBlock;
    const int64_t first_token = std::max<int64_t>(0, begin - span.first_position);
    const int64_t rows = span.num_tokens * group;
    for (int64_t r = first_token * group; r < rows; r += kRowTile) {
      const TileRange range{0, static_cast<int32_t>(r), static_cast<int32_t>(std::min<int64_t>(kRowTile, rows - r))};
      switch (range.num_rows) {
        case 1:
          tile<1>(range, span, begin, keys, forms, dkeys, dvalues);
          break;
        case 2:
          tile<2>(range, span, begin, keys, forms, dkeys, dvalues);
          break;
        case 3:
          tile<3>(range, span, begin, keys, forms, dkeys, dvalues);
          break;
        default:
          tile<4>(range, span, begin, keys, forms, dkeys, dvalues);
          break;
      }
    }
  }

  template <int kRows>
  void tile(const TileRange& range, const QuerySpan& span, int64_t begin, const float* keys, const ChunkForms& forms,
            float* dkeys, float* dvalues) const {
    const RowTile rows = make_tile(range, span, kv_head, heads, group, dim, q, dq);
    std::array<const float*, kRowTile> douts;
    for (int r = 0; r < kRows; ++r) douts[r] = dout + rows.row[r] * dim;
    float scores[kRows][kKvBlock], dprobs[kRows][kKvBlock];
    score_chunk<kRows>(rows.q, keys, dim, scale, scores);
    score_chunk<kRows>(douts, forms.value_columns.data(), dim, 1.0f, dprobs);
    for (int r = 0; r < kRows; ++r) {
      const int64_t live = std::min<int64_t>(kKvBlock, rows.visible[r] - begin);
      if (live > 0) row(rows, r, douts[r], live, scores[r], dprobs[r], forms, dkeys, dvalues);
    }
  }

  void row(const RowTile& rows, int r, const float* row_dout, int64_t live, const float* scores, const float* dprobs,
           const ChunkForms& forms, float* dkeys, float* dvalues) const {
    float p[kKvBlock], ds[kKvBlock];
    const F8 shift = simd::splat(lse[rows.row[r]]), offset = simd::splat(delta[rows.row[r]]), s = simd::splat(scale);
    for (int half = 0; half < kKvBlock; half += 8) {
      const F8 prob = simd::exp(simd::sub(simd::load(scores + half), shift));
      simd::store(p + half, prob);
      simd::store(ds + half, simd::mul(simd::mul(prob, simd::sub(simd::load(dprobs + half), offset)), s));
    }
    std::fill(p + live, p + kKvBlock, 0.0f);
    std::fill(ds + live, ds + kKvBlock, 0.0f);
    const float* key_rows = forms.key_rows.data();
    float* row_dq = rows.out[r];
    simd::for_vectors(dim, [&](int64_t d, int64_t n) {
      F8 acc = simd::load_n(row_dq + d, n);
      const F8 g = simd::load_n(row_dout + d, n);
      for (int64_t j = 0; j < live; ++j) {
        acc = simd::fma(simd::splat(ds[j]), simd::load_n(key_rows + j * dim + d, n), acc);
        float* dv = dvalues + j * dim + d;
        simd::store_n(dv, n, simd::fma(simd::splat(p[j]), g, simd::load_n(dv, n)));
      }
      simd::store_n(row_dq + d, n, acc);
    });
    const F8 ds0 = simd::load(ds), ds1 = simd::load(ds + 8);
    for (int64_t d = 0; d < dim; ++d) {
      const F8 x = simd::splat(rows.q[r][d]);
      float* dk = dkeys + d * kKvBlock;
      simd::store(dk, simd::fma(x, ds0, simd::load(dk)));
      simd::store(dk + 8, simd::fma(x, ds1, simd::load(dk + 8)));
    }
  }
};

// delta = Σ_d dout · out, a row.
at::Tensor row_dots(const at::Tensor& dout, const at::Tensor& out) {
  const int64_t rows = out.size(0) * out.size(1), dim = out.size(2);
  at::Tensor result = empty({rows});
  const float *a = f32(dout), *b = f32(out);
  float* y = f32(result);
  parallel_for(rows, 64, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      F8 acc = simd::zero();
      simd::for_vectors(dim, [&](int64_t d, int64_t n) {
        acc = simd::fma(simd::load_n(a + i * dim + d, n), simd::load_n(b + i * dim + d, n), acc);
      });
      y[i] = simd::sum(acc);
    }
  });
  return result;
}

// Spans whose block tables share a block must run on one thread, in order: they add into the same gradients.
std::vector<std::vector<int32_t>> independent_spans(const AttentionBatch& batch, int64_t num_blocks) {
  std::vector<int32_t> owner(static_cast<size_t>(num_blocks), -1);
  std::vector<std::vector<int32_t>> groups;
  for (size_t s = 0; s < batch.spans.size(); ++s) {
    const QuerySpan& span = batch.spans[s];
    const int64_t blocks = (span.first_position + span.num_tokens + kKvBlock - 1) / kKvBlock;
    const int32_t* table = batch.block_tables.data() + span.first_block;
    int32_t group = -1;
    for (int64_t b = 0; b < blocks; ++b)
      if (owner[table[b]] >= 0) {
        check(group < 0 || group == owner[table[b]], "a span may share blocks with one group only");
        group = owner[table[b]];
      }
    if (group < 0) {
      group = static_cast<int32_t>(groups.size());
      groups.emplace_back();
    }
    groups[group].push_back(static_cast<int32_t>(s));
    for (int64_t b = 0; b < blocks; ++b) owner[table[b]] = group;
  }
  return groups;
}

void gather_token_gradients(const KvView& dkv, std::span<const SlotWrite> writes, int64_t heads, int64_t dim, float* dk,
                            float* dv) {
  parallel_for(heads, 1, [&](int64_t first, int64_t last) {
    for (int64_t h = first; h < last; ++h)
      for (const SlotWrite& write : writes) {
        const int64_t block = write.slot / kKvBlock, offset = write.slot % kKvBlock;
        const float *keys = dkv.keys(block, h), *values = dkv.values(block, h) + offset * dim;
        float *k = dk + (write.token * heads + h) * dim, *v = dv + (write.token * heads + h) * dim;
        for (int64_t d = 0; d < dim; ++d) {
          k[d] += keys[d * kKvBlock + offset];
          v[d] += values[d];
        }
      }
  });
}

}  // namespace

void attention_backward(const at::Tensor& dout, const at::Tensor& q, const at::Tensor& kv, const AttentionBatch& batch,
                        std::span<const SlotWrite> writes, const at::Tensor& out, const at::Tensor& logsumexp,
                        at::Tensor& dq, at::Tensor& dk, at::Tensor& dv) {
  const int64_t heads = q.size(1), dim = q.size(2), kv_heads = kv.size(2);
  const at::Tensor dkv = zeros(kv.sizes()), delta = row_dots(dout, out);
  const KvView view(kv, kv_heads, dim), dview(dkv, kv_heads, dim);
  dq.zero_(), dk.zero_(), dv.zero_();
  const auto groups = independent_spans(batch, kv.size(0));
  parallel_for(static_cast<int64_t>(groups.size()) * kv_heads, 1, [&](int64_t first, int64_t last) {
    ChunkForms forms{std::vector<float>(dim * kKvBlock), std::vector<float>(dim * kKvBlock)};
    for (int64_t i = first; i < last; ++i) {
      const BackwardHead head{
          view,    dview, f32(q),           f32(dout), f32(logsumexp), f32(delta),
          f32(dq), heads, heads / kv_heads, dim,       i % kv_heads,   1.0f / std::sqrt(static_cast<float>(dim))};
      for (const int32_t s : groups[i / kv_heads]) {
        const QuerySpan& span = batch.spans[s];
        const int64_t chunks = (span.first_position + span.num_tokens + kKvBlock - 1) / kKvBlock;
        for (int64_t c = 0; c < chunks; ++c) head.chunk(span, c, batch.block_tables[span.first_block + c], forms);
      }
    }
  });
  gather_token_gradients(dview, writes, kv_heads, dim, f32(dk), f32(dv));
}

}  // namespace tandem::kernels
