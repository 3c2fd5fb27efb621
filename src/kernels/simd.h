// Eight fp32 lanes. Every operation is one rounding in a fixed order, so a result never depends on how many rows or
// elements are processed beside it. AVX2+FMA where the compiler targets it, plain loops elsewhere (same roundings).
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#if defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>
#endif

namespace tandem::simd {

constexpr int kLanes = 8;

#if defined(__AVX2__) && defined(__FMA__)

struct F8 {
  __m256 v;
};

inline F8 zero() { return {_mm256_setzero_ps()}; }
inline F8 splat(float x) { return {_mm256_set1_ps(x)}; }
inline F8 load(const float* p) { return {_mm256_loadu_ps(p)}; }
inline void store(float* p, F8 a) { _mm256_storeu_ps(p, a.v); }
inline F8 add(F8 a, F8 b) { return {_mm256_add_ps(a.v, b.v)}; }
inline F8 sub(F8 a, F8 b) { return {_mm256_sub_ps(a.v, b.v)}; }
inline F8 mul(F8 a, F8 b) { return {_mm256_mul_ps(a.v, b.v)}; }
inline F8 div(F8 a, F8 b) { return {_mm256_div_ps(a.v, b.v)}; }
inline F8 max(F8 a, F8 b) { return {_mm256_max_ps(a.v, b.v)}; }
inline F8 min(F8 a, F8 b) { return {_mm256_min_ps(a.v, b.v)}; }
inline F8 sqrt(F8 a) { return {_mm256_sqrt_ps(a.v)}; }
inline F8 fma(F8 a, F8 b, F8 c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }
inline F8 round(F8 a) { return {_mm256_round_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)}; }
// 2^n for integral n in [-126, 127].
inline F8 exp2_int(F8 n) {
  const __m256i e = _mm256_add_epi32(_mm256_cvtps_epi32(n.v), _mm256_set1_epi32(127));
  return {_mm256_castsi256_ps(_mm256_slli_epi32(e, 23))};
}
// a where x >= limit (false for NaN), else 0.
inline F8 keep_if_ge(F8 a, F8 x, F8 limit) { return {_mm256_and_ps(a.v, _mm256_cmp_ps(x.v, limit.v, _CMP_GE_OQ))}; }
// Sums of the lanes of four vectors, by one fixed tree each.
inline void sum4(F8 a, F8 b, F8 c, F8 d, float out[4]) {
  const __m256 s = _mm256_hadd_ps(_mm256_hadd_ps(a.v, b.v), _mm256_hadd_ps(c.v, d.v));
  _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1)));
}

#else

struct F8 {
  float v[kLanes];
};

template <class Fn>
F8 map(Fn fn) {
  F8 r;
  for (int i = 0; i < kLanes; ++i) r.v[i] = fn(i);
  return r;
}
inline F8 splat(float x) {
  return map([&](int) { return x; });
}
inline F8 zero() { return splat(0.0f); }
inline F8 load(const float* p) {
  return map([&](int i) { return p[i]; });
}
inline void store(float* p, F8 a) { std::memcpy(p, a.v, sizeof a.v); }
inline F8 add(F8 a, F8 b) {
  return map([&](int i) { return a.v[i] + b.v[i]; });
}
inline F8 sub(F8 a, F8 b) {
  return map([&](int i) { return a.v[i] - b.v[i]; });
}
inline F8 mul(F8 a, F8 b) {
  return map([&](int i) { return a.v[i] * b.v[i]; });
}
inline F8 div(F8 a, F8 b) {
  return map([&](int i) { return a.v[i] / b.v[i]; });
}
inline F8 max(F8 a, F8 b) {
  return map([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
}
inline F8 min(F8 a, F8 b) {
  return map([&](int i) { return a.v[i] < b.v[i] ? a.v[i] : b.v[i]; });
}
inline F8 sqrt(F8 a) {
  return map([&](int i) { return std::sqrt(a.v[i]); });
}
inline F8 fma(F8 a, F8 b, F8 c) {
  return map([&](int i) { return std::fma(a.v[i], b.v[i], c.v[i]); });
}
inline F8 round(F8 a) {
  return map([&](int i) { return std::nearbyint(a.v[i]); });
}
inline F8 exp2_int(F8 n) {
  return map([&](int i) { return std::ldexp(1.0f, static_cast<int>(n.v[i])); });
}
inline F8 keep_if_ge(F8 a, F8 x, F8 limit) {
  return map([&](int i) { return x.v[i] >= limit.v[i] ? a.v[i] : 0.0f; });
}
inline float tree_sum(F8 a) {
  return ((a.v[0] + a.v[1]) + (a.v[2] + a.v[3])) + ((a.v[4] + a.v[5]) + (a.v[6] + a.v[7]));
}
inline void sum4(F8 a, F8 b, F8 c, F8 d, float out[4]) {
  out[0] = tree_sum(a), out[1] = tree_sum(b), out[2] = tree_sum(c), out[3] = tree_sum(d);
}

#endif

// The first n (< 8) lanes from memory, the others `fill`.
inline F8 load_partial(const float* p, int64_t n, float fill = 0.0f) {
  float lanes[kLanes] = {fill, fill, fill, fill, fill, fill, fill, fill};
  std::memcpy(lanes, p, static_cast<size_t>(n) * sizeof(float));
  return load(lanes);
}
inline void store_partial(float* p, int64_t n, F8 a) {
  float lanes[kLanes];
  store(lanes, a);
  std::memcpy(p, lanes, static_cast<size_t>(n) * sizeof(float));
}

inline float sum(F8 a) {
  float out[4];
  sum4(a, a, a, a, out);
  return out[0];
}

inline float max_lane(F8 a) {
  float lanes[kLanes];
  store(lanes, a);
  float m = lanes[0];
  for (int i = 1; i < kLanes; ++i) m = lanes[i] > m ? lanes[i] : m;
  return m;
}

// e^x to about 1 ulp for x in [-87.3, 88.3]; 0 below (and for NaN-free input only).
// Cody-Waite reduction and a degree-6 polynomial on [-ln2/2, ln2/2].
inline F8 exp(F8 x) {
  const F8 lowest = splat(-87.3f);
  const F8 clamped = min(max(x, lowest), splat(88.3f));
  const F8 n = round(mul(clamped, splat(1.44269504088896341f)));
  F8 r = fma(n, splat(-0.693145751953125f), clamped);
  r = fma(n, splat(-1.428606820309417232e-6f), r);
  F8 p = splat(1.3981999507e-3f);
  p = fma(p, r, splat(8.3334519073e-3f));
  p = fma(p, r, splat(4.1665795894e-2f));
  p = fma(p, r, splat(1.6666665459e-1f));
  p = fma(p, r, splat(5.0000001201e-1f));
  p = fma(mul(p, r), r, add(r, splat(1.0f)));
  return keep_if_ge(mul(p, exp2_int(n)), x, lowest);
}

// Runs fn(offset, F8-in-lanes count): whole vectors first, then one partial. fn must treat lanes past `count` as
// absent.
template <class Fn>
inline void for_vectors(int64_t n, Fn fn) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) fn(i, int64_t{kLanes});
  if (i < n) fn(i, n - i);
}
inline F8 load_n(const float* p, int64_t count, float fill = 0.0f) {
  return count == kLanes ? load(p) : load_partial(p, count, fill);
}
inline void store_n(float* p, int64_t count, F8 a) { count == kLanes ? store(p, a) : store_partial(p, count, a); }

}  // namespace tandem::simd
