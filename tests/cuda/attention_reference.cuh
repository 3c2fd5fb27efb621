// Attention and its gradients in float64, one thread block per (row, head), as simply as can be.
#pragma once

#include "attention_batch.cuh"

namespace tandem::cuda::test {

struct ReferenceArgs {
  const bf16 *rows, *dout;  // rows of [q | k | v] heads; dout null: no gradients
  const PackedSequence* sequences;
  const int2* places;  // of a row: its sequence and its position
  int width, heads, kv_heads, dim;
  double *out, *logsumexp, *dq, *dk, *dv;
};

constexpr int kReferenceThreads = 128, kReferenceKeys = 3072;

template <class F>
__device__ double block_sum(F term, int count, double* scratch) {  // in any order: float64 is far more than enough
  double sum = 0;
  for (int i = threadIdx.x; i < count; i += kReferenceThreads) sum += term(i);
  scratch[threadIdx.x] = sum;
  __syncthreads();
  for (int half = kReferenceThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) scratch[threadIdx.x] += scratch[threadIdx.x + half];
    __syncthreads();
  }
  sum = scratch[0];
  __syncthreads();
  return sum;
}

static __global__ void __launch_bounds__(kReferenceThreads) reference_kernel(const ReferenceArgs a) {
  __shared__ double p[kReferenceKeys], scratch[kReferenceThreads];
  const int row = blockIdx.x / a.heads, head = blockIdx.x % a.heads, kv_head = head / (a.heads / a.kv_heads);
  const PackedSequence s = a.sequences[a.places[row].x];
  const int keys = a.places[row].y + 1, dim = a.dim, tid = threadIdx.x;
  const double scale = 1.0 / sqrt(static_cast<double>(dim));
  auto at = [&](int r, int column) { return static_cast<double>(a.rows[static_cast<int64_t>(r) * a.width + column]); };
  auto row_of = [&](int j) { return j < s.prefix_len ? s.prefix_row + j : s.own_row + j - s.prefix_len; };
  const int q = head * dim, k = (a.heads + kv_head) * dim, v = (a.heads + a.kv_heads + kv_head) * dim;
  for (int j = tid; j < keys; j += kReferenceThreads) {
    double dot = 0;
    for (int d = 0; d < dim; ++d) dot += at(row, q + d) * at(row_of(j), k + d);
    p[j] = dot * scale;
  }
  __syncthreads();
  double max = -INFINITY;
  for (int j = 0; j < keys; ++j) max = fmax(max, p[j]);
  const double sum = block_sum([&](int j) { return exp(p[j] - max); }, keys, scratch);
  for (int j = tid; j < keys; j += kReferenceThreads) p[j] = exp(p[j] - max) / sum;
  __syncthreads();
  const int64_t to = (static_cast<int64_t>(row) * a.heads + head) * dim;
  for (int d = tid; d < dim; d += kReferenceThreads) {
    double x = 0;
    for (int j = 0; j < keys; ++j) x += p[j] * at(row_of(j), v + d);
    a.out[to + d] = x;
  }
  if (tid == 0) a.logsumexp[static_cast<int64_t>(row) * a.heads + head] = max + log(sum);
  if (a.dout == nullptr) return;
  __syncthreads();
  auto dout = [&](int d) { return static_cast<double>(a.dout[to + d]); };
  const double delta = block_sum([&](int d) { return a.out[to + d] * dout(d); }, dim, scratch);
  for (int d = tid; d < dim; d += kReferenceThreads)
    for (int j = 0; j < keys; ++j)
      atomicAdd(a.dv + (static_cast<int64_t>(row_of(j)) * a.kv_heads + kv_head) * dim + d, p[j] * dout(d));
  __syncthreads();
  for (int j = tid; j < keys; j += kReferenceThreads) {
    double dp = 0;
    for (int d = 0; d < dim; ++d) dp += dout(d) * at(row_of(j), v + d);
    p[j] *= (dp - delta) * scale;
  }
  __syncthreads();
  for (int d = tid; d < dim; d += kReferenceThreads) {
    double x = 0;
    for (int j = 0; j < keys; ++j) {
      x += p[j] * at(row_of(j), k + d);
      atomicAdd(a.dk + (static_cast<int64_t>(row_of(j)) * a.kv_heads + kv_head) * dim + d, p[j] * at(row, q + d));
    }
    a.dq[to + d] = x;
  }
}

struct Reference {
  Device<double> out, logsumexp, dq, dk, dv;
};

inline Reference reference(const PackedInput& in, const Device<bf16>* dout) {
  const Case& form = in.batch.form;
  const auto& sequences = &in.rows == &in.batch.flat ? in.batch.flat_sequences : in.batch.packed_sequences;
  std::vector<int2> places(in.num_rows);
  for (size_t s = 0; s < sequences.size(); ++s)
    for (int32_t i = 0; i < sequences[s].own_len; ++i)
      places[sequences[s].own_row + i] = {static_cast<int>(s), sequences[s].prefix_len + i};
  const Device<int2> device_places(places);
  const size_t rows = in.num_rows, q = rows * form.heads * form.head_dim, kv = rows * form.kv_heads * form.head_dim;
  Reference r{Device<double>(q), Device<double>(rows * form.heads), Device<double>(q), Device<double>(kv),
              Device<double>(kv)};
  must(cudaMemset(r.dk.get(), 0, kv * sizeof(double)));
  must(cudaMemset(r.dv.get(), 0, kv * sizeof(double)));
  const ReferenceArgs args{in.rows.get(),      dout ? dout->get() : nullptr,
                           in.sequences.get(), device_places.get(),
                           in.batch.width(),   form.heads,
                           form.kv_heads,      form.head_dim,
                           r.out.get(),        r.logsumexp.get(),
                           r.dq.get(),         r.dk.get(),
                           r.dv.get()};
  reference_kernel<<<in.num_rows * form.heads, kReferenceThreads>>>(args);
  must(cudaDeviceSynchronize());
  return r;
}

// ‖x − expected‖ / ‖expected‖; NaN where x holds one.
inline double relative_error(const Device<bf16>& x, const Device<double>& expected) {
  const auto got = x.host();
  const auto want = expected.host();
  double error = 0, norm = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double d = static_cast<double>(__bfloat162float(got[i])) - want[i];
    error += d * d;
    norm += want[i] * want[i];
  }
  return std::sqrt(error / norm);
}

inline double largest_error(const Device<float>& x, const Device<double>& expected) {  // relative beyond 1
  const auto got = x.host();
  const auto want = expected.host();
  double worst = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double d = std::abs(got[i] - want[i]) / std::max(1.0, std::abs(want[i]));
    worst = d <= worst ? worst : d;
  }
  return worst;
}

}  // namespace tandem::cuda::test
