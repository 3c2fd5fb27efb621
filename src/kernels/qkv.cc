#include <cstring>

#include "kernels/attention.h"
#include "kernels/norm_row.h"
#include "kernels/parallel_for.h"
#include "kernels/tensor_view.h"

namespace tandem::kernels {
namespace {

void rotate(const float* x, const float* cos, const float* sin, int64_t half, float* out) {
  for (int64_t i = 0; i < half; ++i) {
    const float a = x[i], b = x[i + half];
    out[i] = a * cos[i] - b * sin[i];
    out[i + half] = b * cos[i] + a * sin[i];
  }
}

// The rotation's transpose.
void rotate_back(const float* x, const float* cos, const float* sin, int64_t half, float* out) {
  for (int64_t i = 0; i < half; ++i) {
    const float a = x[i], b = x[i + half];
    out[i] = a * cos[i] + b * sin[i];
    out[i + half] = b * cos[i] - a * sin[i];
  }
}

constexpr int64_t kMaxHeadDim = 512;

// Norm (if any) and rotation of `heads` neighbouring heads of one token.
void transform_heads(const float* x, int64_t heads, int64_t dim, const float* weight, float eps, const float* cos,
                     const float* sin, float* out) {
  float normed[kMaxHeadDim];
  for (int64_t h = 0; h < heads; ++h, x += dim, out += dim) {
    if (weight != nullptr) norm_row(x, weight, eps, dim, normed);
    rotate(weight != nullptr ? normed : x, cos, sin, dim / 2, out);
  }
}

void transform_heads_backward(const float* dout, const float* x, int64_t heads, int64_t dim, const float* weight,
                              float eps, const float* cos, const float* sin, float* dx, float* dweight) {
  float dnormed[kMaxHeadDim];
  for (int64_t h = 0; h < heads; ++h, x += dim, dout += dim, dx += dim) {
    if (weight == nullptr) {
      rotate_back(dout, cos, sin, dim / 2, dx);
      continue;
    }
    rotate_back(dout, cos, sin, dim / 2, dnormed);
    std::memset(dx, 0, static_cast<size_t>(dim) * sizeof(float));
    const float inv = norm_row_backward(dnormed, x, weight, eps, dim, dx);
    for (int64_t i = 0; dweight != nullptr && i < dim; ++i) dweight[i] += dnormed[i] * x[i] * inv;
  }
}

const float* optional_f32(const at::Tensor& tensor) { return tensor.defined() ? f32(tensor) : nullptr; }

void check_transform(const QkvTransform& t, const at::Tensor& qkv, std::span<const int32_t> positions) {
  check(t.heads.head_dim % 2 == 0 && t.heads.head_dim <= kMaxHeadDim, "head_dim must be even and at most 512");
  check_shape(
      qkv, {static_cast<int64_t>(positions.size()), (t.heads.num_heads + 2 * t.heads.num_kv_heads) * t.heads.head_dim});
  for (const int32_t position : positions)
    check(position >= 0 && position < t.cos_PD2.size(0), "a position lies beyond the longest sequence announced");
}

}  // namespace

void split_qkv(const at::Tensor& qkv, const QkvTransform& t, std::span<const int32_t> positions, at::Tensor& q,
               at::Tensor& k, at::Tensor& v) {
  check_transform(t, qkv, positions);
  const int64_t heads = t.heads.num_heads, kv_heads = t.heads.num_kv_heads, dim = t.heads.head_dim;
  const int64_t tokens = qkv.size(0), width = qkv.size(1), half = dim / 2;
  const float *x = f32(qkv), *cos = f32(t.cos_PD2), *sin = f32(t.sin_PD2);
  const float *q_norm = optional_f32(t.q_norm_D), *k_norm = optional_f32(t.k_norm_D);
  float *pq = f32(q), *pk = f32(k), *pv = f32(v);
  const int64_t q_width = heads * dim, kv_width = kv_heads * dim;
  parallel_for(tokens, 16, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const float *row = x + i * width, *c = cos + positions[i] * half, *s = sin + positions[i] * half;
      transform_heads(row, heads, dim, q_norm, t.eps, c, s, pq + i * q_width);
      transform_heads(row + q_width, kv_heads, dim, k_norm, t.eps, c, s, pk + i * kv_width);
      std::memcpy(pv + i * kv_width, row + q_width + kv_width, static_cast<size_t>(kv_width) * sizeof(float));
    }
  });
}

void split_qkv_backward(const at::Tensor& dq, const at::Tensor& dk, const at::Tensor& dv, const at::Tensor& qkv,
                        const QkvTransform& t, std::span<const int32_t> positions, at::Tensor& dqkv,
                        at::Tensor& dq_norm, at::Tensor& dk_norm) {
  check_transform(t, qkv, positions);
  check_shape(dqkv, qkv.sizes());
  const int64_t heads = t.heads.num_heads, kv_heads = t.heads.num_kv_heads, dim = t.heads.head_dim;
  const int64_t tokens = qkv.size(0), width = qkv.size(1), half = dim / 2;
  const float *x = f32(qkv), *cos = f32(t.cos_PD2), *sin = f32(t.sin_PD2);
  const float *q_norm = optional_f32(t.q_norm_D), *k_norm = optional_f32(t.k_norm_D);
  const float *pdq = f32(dq), *pdk = f32(dk), *pdv = f32(dv);
  float* dx = f32(dqkv);
  const int64_t q_width = heads * dim, kv_width = kv_heads * dim;
  float* gq = dq_norm.defined() ? f32(dq_norm) : nullptr;
  float* gk = dk_norm.defined() ? f32(dk_norm) : nullptr;
  // The norms' weights are shared by all tokens, so where those are trained one thread sums in token order.
  const int64_t grain = gq != nullptr ? tokens : 16;
  parallel_for(tokens, grain, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const float *row = x + i * width, *c = cos + positions[i] * half, *s = sin + positions[i] * half;
      float* drow = dx + i * width;
      transform_heads_backward(pdq + i * q_width, row, heads, dim, q_norm, t.eps, c, s, drow, gq);
      transform_heads_backward(pdk + i * kv_width, row + q_width, kv_heads, dim, k_norm, t.eps, c, s, drow + q_width,
                               gk);
      std::memcpy(drow + q_width + kv_width, pdv + i * kv_width, static_cast<size_t>(kv_width) * sizeof(float));
    }
  });
}

}  // namespace tandem::kernels
