// Attention forward. For each query row: chunks of kKvBlock keys in ascending order; within a chunk every score is one
// chain of fused multiply-adds over the head dim, and the running softmax (Milakov & Gimelshein 2018, arXiv:1805.02867)
// is rescaled once a chunk. Rows are tiled only to share loads, so a row's bits know nothing of its neighbours.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/attention.h"
#include "kernels/attention_rows.h"
#include "kernels/parallel_for.h"
#include "kernels/tensor_view.h"

namespace tandem::kernels {
namespace {

using simd::F8;

struct RowState {
  float max = -std::numeric_limits<float>::infinity();
  float sum = 0;
};

// Folds one chunk into a row: `scores` are scaled, the first `live` are visible.
void fold_chunk(const float* scores, int64_t live, const float* values, int64_t dim, RowState& state, float* out) {
  float p[kKvBlock];
  float top = scores[0];
  for (int64_t j = 1; j < live; ++j) top = std::max(top, scores[j]);
  const float max = std::max(state.max, top);
  const F8 shift = simd::splat(max);
  simd::store(p, simd::exp(simd::sub(simd::load(scores), shift)));
  simd::store(p + 8, simd::exp(simd::sub(simd::load(scores + 8), shift)));
  std::fill(p + live, p + kKvBlock, 0.0f);
  float old[8];
  simd::store(old, simd::exp(simd::splat(state.max - max)));
  const float keep = state.sum == 0 ? 0.0f : old[0];
  state.sum = state.sum * keep + simd::sum(simd::add(simd::load(p), simd::load(p + 8)));
  state.max = max;
  simd::for_vectors(dim, [&](int64_t d, int64_t n) {
    F8 acc = simd::mul(simd::load_n(out + d, n), simd::splat(keep));
    for (int64_t j = 0; j < live; ++j) acc = simd::fma(simd::splat(p[j]), simd::load_n(values + j * dim + d, n), acc);
    simd::store_n(out + d, n, acc);
  });
}

// Up to kRowTile rows (query heads of one key/value head, at one or more tokens) over all their chunks.
template <int kRows>
void attend(const RowTile& tile, const KvView& kv, int64_t kv_head, const int32_t* blocks, float scale, int64_t dim,
            float* logsumexp) {
  RowState states[kRows];
  int64_t longest = 0;
  for (int r = 0; r < kRows; ++r) {
    longest = std::max(longest, tile.visible[r]);
    std::memset(tile.out[r], 0, static_cast<size_t>(dim) * sizeof(float));
  }
  float scores[kRows][kKvBlock];
  for (int64_t begin = 0, chunk = 0; begin < longest; begin += kKvBlock, ++chunk) {
    score_chunk<kRows>(tile.q, kv.keys(blocks[chunk], kv_head), dim, scale, scores);
    const float* values = kv.values(blocks[chunk], kv_head);
    for (int r = 0; r < kRows; ++r) {
      const int64_t live = std::min<int64_t>(kKvBlock, tile.visible[r] - begin);
      if (live > 0) fold_chunk(scores[r], live, values, dim, states[r], tile.out[r]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    const F8 inverse = simd::splat(1.0f / states[r].sum);
    simd::for_vectors(dim, [&](int64_t d, int64_t n) {
      simd::store_n(tile.out[r] + d, n, simd::mul(simd::load_n(tile.out[r] + d, n), inverse));
    });
    logsumexp[tile.row[r]] = states[r].max + std::log(states[r].sum);
  }
}

}  // namespace

void write_kv(const at::Tensor& k, const at::Tensor& v, std::span<const SlotWrite> writes, at::Tensor& kv) {
  const int64_t heads = k.size(1), dim = k.size(2);
  const KvView view(kv, heads, dim);
  const float *pk = f32(k), *pv = f32(v);
  parallel_for(static_cast<int64_t>(writes.size()), 16, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const int64_t block = writes[i].slot / kKvBlock, offset = writes[i].slot % kKvBlock;
      for (int64_t h = 0; h < heads; ++h) {
        const float* source = pk + (writes[i].token * heads + h) * dim;
        float* keys = view.keys(block, h);
        for (int64_t d = 0; d < dim; ++d) keys[d * kKvBlock + offset] = source[d];
        std::memcpy(view.values(block, h) + offset * dim, pv + (writes[i].token * heads + h) * dim,
                    static_cast<size_t>(dim) * sizeof(float));
      }
    }
  });
}

void attention(const at::Tensor& q, const at::Tensor& kv, const AttentionBatch& batch, at::Tensor& out,
               at::Tensor& logsumexp) {
  const int64_t heads = q.size(1), dim = q.size(2), kv_heads = kv.size(2);
  check_shape(out, q.sizes());
  check_shape(logsumexp, {q.size(0), heads});
  const KvView view(kv, kv_heads, dim);
  const float scale = 1.0f / std::sqrt(static_cast<float>(dim));
  const float* pq = f32(q);
  float *po = f32(out), *lse = f32(logsumexp);
  const auto tiles = tile_rows(batch, heads / kv_heads);
  const int64_t work = static_cast<int64_t>(tiles.size()) * kv_heads;
  parallel_for(work, 4, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const TileRange& range = tiles[i / kv_heads];
      const int64_t kv_head = i % kv_heads;
      const QuerySpan& span = batch.spans[range.span];
      const RowTile tile = make_tile(range, span, kv_head, heads, heads / kv_heads, dim, pq, po);
      const int32_t* blocks = batch.block_tables.data() + span.first_block;
      switch (range.num_rows) {
        case 1:
          attend<1>(tile, view, kv_head, blocks, scale, dim, lse);
          break;
        case 2:
          attend<2>(tile, view, kv_head, blocks, scale, dim, lse);
          break;
        case 3:
          attend<3>(tile, view, kv_head, blocks, scale, dim, lse);
          break;
        default:
          attend<4>(tile, view, kv_head, blocks, scale, dim, lse);
          break;
      }
    }
  });
}

}  // namespace tandem::kernels
