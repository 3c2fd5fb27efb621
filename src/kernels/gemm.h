// Single-precision matrix products whose every output element is summed in an order fixed by the inner dimension alone:
// not by the other dimension's size, the tile it fell into, or the number of threads. Raw pointers, row-major.
#pragma once

#include <cstdint>

namespace tandem::kernels {

// c_MN = a_MK · b_NKᵀ. The forward product of a linear layer; no packing, so that few rows are as cheap as they can be.
void gemm_nt(const float* a, const float* b, float* c, int64_t m, int64_t n, int64_t k);
// The same of rows that lie `lda` and `ldb` apart.
void gemm_nt(const float* a, int64_t lda, const float* b, int64_t ldb, float* c, int64_t m, int64_t n, int64_t k);

// c_MN += a · b_KN, where a(i, p) = a[i * a_row + p * a_col]. Both products of a linear layer's backward.
void gemm_accumulate(const float* a, int64_t a_row, int64_t a_col, const float* b, float* c, int64_t m, int64_t n,
                     int64_t k);

}  // namespace tandem::kernels
