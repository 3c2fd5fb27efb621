// What attention's forward and backward share: views into kv blocks, tiles of query rows, and the scores of a chunk.
#pragma once

#include <array>
#include <vector>

#include "kernels/kv_layout.h"
#include "kernels/simd.h"
#include "kernels/tensor_view.h"

namespace tandem::kernels {

constexpr int kRowTile = 4;

class KvView {
 public:
  KvView(const at::Tensor& kv, int64_t kv_heads, int64_t dim)
      : data_(f32(kv)), heads_(kv_heads), size_(dim * kKvBlock) {
    check(kv.dim() == 4 && kv.size(1) == 2 && kv.size(2) == kv_heads && kv.size(3) == size_,
          "kv has an unexpected shape");
  }
  float* keys(int64_t block, int64_t head) const { return data_ + (block * 2 * heads_ + head) * size_; }
  float* values(int64_t block, int64_t head) const { return data_ + ((block * 2 + 1) * heads_ + head) * size_; }

 private:
  float* data_;
  int64_t heads_, size_;
};

// Rows of a span, counted token by token and, within a token, over the query heads that share a key/value head.
struct TileRange {
  int32_t span;
  int32_t first_row;
  int32_t num_rows;
};

inline std::vector<TileRange> tile_rows(const AttentionBatch& batch, int64_t group) {
  std::vector<TileRange> tiles;
  for (size_t s = 0; s < batch.spans.size(); ++s) {
    const int32_t rows = batch.spans[s].num_tokens * static_cast<int32_t>(group);
    for (int32_t r = 0; r < rows; r += kRowTile)
      tiles.push_back({static_cast<int32_t>(s), r, std::min<int32_t>(kRowTile, rows - r)});
  }
  return tiles;
}

struct RowTile {
  std::array<const float*, kRowTile> q;
  std::array<float*, kRowTile> out;
  std::array<int64_t, kRowTile> visible;  // keys a row may see
  std::array<int64_t, kRowTile> row;      // token · H + head
};

inline RowTile make_tile(const TileRange& range, const QuerySpan& span, int64_t kv_head, int64_t heads, int64_t group,
                         int64_t dim, const float* q, float* out) {
  RowTile tile;
  for (int r = 0; r < range.num_rows; ++r) {
    const int64_t token = (range.first_row + r) / group, head = kv_head * group + (range.first_row + r) % group;
    tile.row[r] = (span.first_token + token) * heads + head;
    tile.q[r] = q + tile.row[r] * dim;
    tile.out[r] = out + tile.row[r] * dim;
    tile.visible[r] = span.first_position + token + 1;
  }
  return tile;
}

// scores[r][j] = scale · Σ_d x[r][d] · columns[d][j], d ascending: one chain a score.
template <int kRows>
void score_chunk(const std::array<const float*, kRowTile>& x, const float* columns, int64_t dim, float scale,
                 float (*scores)[kKvBlock]) {
  simd::F8 acc[kRows][2];
  for (auto& row : acc) row[0] = row[1] = simd::zero();
  for (int64_t d = 0; d < dim; ++d) {
    const simd::F8 k0 = simd::load(columns + d * kKvBlock), k1 = simd::load(columns + d * kKvBlock + 8);
    for (int r = 0; r < kRows; ++r) {
      const simd::F8 v = simd::splat(x[r][d]);
      acc[r][0] = simd::fma(v, k0, acc[r][0]);
      acc[r][1] = simd::fma(v, k1, acc[r][1]);
    }
  }
  const simd::F8 s = simd::splat(scale);
  for (int r = 0; r < kRows; ++r) {
    simd::store(scores[r], simd::mul(acc[r][0], s));
    simd::store(scores[r] + 8, simd::mul(acc[r][1], s));
  }
}

}  // namespace tandem::kernels
