#include "kernels/gemm.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/parallel_for.h"
#include "kernels/simd.h"

namespace tandem::kernels {
namespace {

using simd::F8;
using simd::kLanes;

// ---- a · bᵀ: each output is a dot product over eight lanes, then one fixed tree.
// Twelve independent sums hide the latency of fused multiply-add; four columns are one call of sum4. The loops must be
// unrolled before the compiler looks for registers to keep `acc` in: it does not by itself.
constexpr int64_t kTileRows = 3, kTileCols = 4;

template <int kRows, int kCols>
void dot_tile(const float* a, int64_t lda, const float* b, int64_t ldb, float* c, int64_t k, int64_t ldc) {
  F8 acc[kRows][kCols];
#pragma GCC unroll 4
  for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < kCols; ++j) acc[i][j] = simd::zero();
  int64_t p = 0;
  for (; p + kLanes <= k; p += kLanes) {
    F8 av[kRows];
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) av[i] = simd::load(a + i * lda + p);
#pragma GCC unroll 4
    for (int j = 0; j < kCols; ++j) {
      const F8 bv = simd::load(b + j * ldb + p);
#pragma GCC unroll 4
      for (int i = 0; i < kRows; ++i) acc[i][j] = simd::fma(av[i], bv, acc[i][j]);
    }
  }
  if (p < k) {
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
      for (int j = 0; j < kCols; ++j)
        acc[i][j] = simd::fma(simd::load_partial(a + i * lda + p, k - p), simd::load_partial(b + j * ldb + p, k - p),
                              acc[i][j]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < kRows; ++i) {
    float sums[4];
    simd::sum4(acc[i][0], acc[i][1 % kCols], acc[i][2 % kCols], acc[i][3 % kCols], sums);
    std::memcpy(c + i * ldc, sums, kCols * sizeof(float));
  }
}

template <int kCols>
void dot_rows(const float* a, int64_t lda, const float* b, int64_t ldb, float* c, int64_t rows, int64_t k,
              int64_t ldc) {
  switch (rows) {
    case 3:
      return dot_tile<3, kCols>(a, lda, b, ldb, c, k, ldc);
    case 2:
      return dot_tile<2, kCols>(a, lda, b, ldb, c, k, ldc);
    default:
      return dot_tile<1, kCols>(a, lda, b, ldb, c, k, ldc);
  }
}

void dot_columns(const float* a, int64_t lda, const float* b, int64_t ldb, float* c, int64_t rows, int64_t columns,
                 int64_t k, int64_t ldc) {
  switch (columns) {
    case 4:
      return dot_rows<4>(a, lda, b, ldb, c, rows, k, ldc);
    case 3:
      return dot_rows<3>(a, lda, b, ldb, c, rows, k, ldc);
    case 2:
      return dot_rows<2>(a, lda, b, ldb, c, rows, k, ldc);
    default:
      return dot_rows<1>(a, lda, b, ldb, c, rows, k, ldc);
  }
}

// Memory that will be read soon, asked for a piece at a time.
class Prefetcher {
 public:
  Prefetcher(const float* begin, int64_t size, int64_t pieces)
      : at_(begin), end_(begin + size), step_((size + pieces - 1) / pieces) {}
  void fetch() {
    constexpr int64_t kLine = 64 / sizeof(float);
    const float* stop = std::min(end_, at_ + step_);
    for (; at_ < stop; at_ += kLine) __builtin_prefetch(at_, 0, 2);
  }

 private:
  const float *at_, *end_;
  int64_t step_;
};

int64_t whole(int64_t value, int64_t unit) { return std::max(unit, value / unit * unit); }

// ---- a · b: packed panels and a 6 × 16 tile (the scheme of Goto and van de Geijn, ACM TOMS 34(3), 2008).
constexpr int64_t kPanelRows = 6, kPanelCols = 16, kDepth = 256, kRowBlock = 96;

void pack_rows(const float* a, int64_t a_row, int64_t a_col, int64_t rows, int64_t depth, float* packed) {
  for (int64_t i = 0; i < rows; i += kPanelRows) {
    const int64_t live = std::min(kPanelRows, rows - i);
    for (int64_t p = 0; p < depth; ++p)
      for (int64_t r = 0; r < kPanelRows; ++r) *packed++ = r < live ? a[(i + r) * a_row + p * a_col] : 0.0f;
  }
}

void pack_cols(const float* b, int64_t ldb, int64_t cols, int64_t depth, float* packed) {
  for (int64_t j = 0; j < cols; j += kPanelCols) {
    const int64_t live = std::min(kPanelCols, cols - j);
    for (int64_t p = 0; p < depth; ++p, packed += kPanelCols) {
      std::memcpy(packed, b + p * ldb + j, static_cast<size_t>(live) * sizeof(float));
      std::fill(packed + live, packed + kPanelCols, 0.0f);
    }
  }
}

void panel_tile(const float* a, const float* b, int64_t depth, float* c, int64_t ldc, int64_t rows, int64_t cols) {
  F8 acc[kPanelRows][2];
  for (auto& row : acc) row[0] = row[1] = simd::zero();
  for (int64_t p = 0; p < depth; ++p, a += kPanelRows, b += kPanelCols) {
    const F8 b0 = simd::load(b), b1 = simd::load(b + kLanes);
    for (int64_t i = 0; i < kPanelRows; ++i) {
      const F8 av = simd::splat(a[i]);
      acc[i][0] = simd::fma(av, b0, acc[i][0]);
      acc[i][1] = simd::fma(av, b1, acc[i][1]);
    }
  }
  if (rows == kPanelRows && cols == kPanelCols) {
    for (int64_t i = 0; i < kPanelRows; ++i) {
      float* out = c + i * ldc;
      simd::store(out, simd::add(simd::load(out), acc[i][0]));
      simd::store(out + kLanes, simd::add(simd::load(out + kLanes), acc[i][1]));
    }
    return;
  }
  float edge[kPanelRows][kPanelCols];
  for (int64_t i = 0; i < kPanelRows; ++i) {
    simd::store(edge[i], acc[i][0]);
    simd::store(edge[i] + kLanes, acc[i][1]);
  }
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < cols; ++j) c[i * ldc + j] += edge[i][j];
}

// One thread's share: columns [0, n) of b and c, whose rows are `ld` apart.
void accumulate_columns(const float* a, int64_t a_row, int64_t a_col, const float* b, float* c, int64_t ld, int64_t m,
                        int64_t n, int64_t k) {
  constexpr int64_t kColBlock = 512;
  std::vector<float> packed_a(kRowBlock * kDepth), packed_b(kColBlock * kDepth);
  for (int64_t p = 0; p < k; p += kDepth) {
    const int64_t depth = std::min(kDepth, k - p);
    for (int64_t j = 0; j < n; j += kColBlock) {
      const int64_t cols = std::min(kColBlock, n - j);
      pack_cols(b + p * ld + j, ld, cols, depth, packed_b.data());
      for (int64_t i = 0; i < m; i += kRowBlock) {
        const int64_t rows = std::min(kRowBlock, m - i);
        pack_rows(a + i * a_row + p * a_col, a_row, a_col, rows, depth, packed_a.data());
        for (int64_t jj = 0; jj < cols; jj += kPanelCols)
          for (int64_t ii = 0; ii < rows; ii += kPanelRows)
            panel_tile(packed_a.data() + ii * depth, packed_b.data() + jj * depth, depth, c + (i + ii) * ld + j + jj,
                       ld, std::min(kPanelRows, rows - ii), std::min(kPanelCols, cols - jj));
      }
    }
  }
}

}  // namespace

void gemm_nt(const float* a, const float* b, float* c, int64_t m, int64_t n, int64_t k) {
  gemm_nt(a, k, b, k, c, m, n, k);
}

void gemm_nt(const float* a, int64_t lda, const float* b, int64_t ldb, float* c, int64_t m, int64_t n, int64_t k) {
  // Rows of b that stay in the second-level cache while tiles of a, one at a time in the first, are led past them.
  const int64_t col_block = whole((64 << 10) / 4 / std::max<int64_t>(k, 1), kTileCols);
  const int64_t col_tiles = (n + kTileCols - 1) / kTileCols;
  // Few pieces: each begins with a block that nothing asked for ahead of time.
  const int64_t grain = std::max<int64_t>(
      {1, (1 << 16) / std::max<int64_t>(1, m * k * kTileCols), col_tiles / (2 * omp_get_max_threads())});
  parallel_for(col_tiles, grain, [&](int64_t first, int64_t last) {
    const int64_t end = std::min(n, last * kTileCols);
    for (int64_t jb = first * kTileCols; jb < end; jb += col_block) {
      const int64_t je = std::min(end, jb + col_block);
      // The next block's lines are asked for while this one, already near, is worked on for the later rows.
      const int64_t later = (m + kTileRows - 1) / kTileRows - 1;
      Prefetcher next(b + je * ldb, (std::min(end, je + col_block) - je) * ldb,
                      std::max<int64_t>(1, later * ((je - jb) / kTileCols)));
      for (int64_t i = 0, rows = 0; i < m; i += rows) {
        rows = m - i == kTileRows + 1 ? 2 : std::min(kTileRows, m - i);  // a row by itself would wait on its own sums
        for (int64_t j = jb; j < je; j += kTileCols) {
          if (i > 0) next.fetch();
          dot_columns(a + i * lda, lda, b + j * ldb, ldb, c + i * n + j, rows, std::min(kTileCols, je - j), k, n);
        }
      }
    }
  });
}

void gemm_accumulate(const float* a, int64_t a_row, int64_t a_col, const float* b, float* c, int64_t m, int64_t n,
                     int64_t k) {
  const int64_t panels = (n + kPanelCols - 1) / kPanelCols;
  // A piece packs all of `a` for itself: wide pieces make that cheap.
  parallel_for(panels, 8, [&](int64_t first, int64_t last) {
    const int64_t begin = first * kPanelCols, end = std::min(n, last * kPanelCols);
    accumulate_columns(a, a_row, a_col, b + begin, c + begin, n, m, end - begin, k);
  });
}

}  // namespace tandem::kernels
