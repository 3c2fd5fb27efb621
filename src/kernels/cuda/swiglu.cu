#include "kernels/cuda/swiglu.h"

#include "kernels/cuda/device.cuh"

namespace tandem::cuda {
namespace {

constexpr int kThreads = 256;

// In forward and backward the same bits.
__device__ float sigmoid(float x) { return __fdividef(1.0f, __fadd_rn(1.0f, __expf(-x))); }
__device__ float silu_times(float gate, float sigma, float up) { return __fmul_rn(__fmul_rn(gate, sigma), up); }

// Thread i of the grid has vector i of out_TF; its gate and up lie at `gate` and `gate + F`.
struct Place {
  int64_t index, out, gate;
  __device__ Place(int64_t vectors_per_row) : index(int64_t{blockIdx.x} * kThreads + threadIdx.x) {
    const int64_t row = index / vectors_per_row;
    out = index * kVector;
    gate = out + row * vectors_per_row * kVector;
  }
};

__global__ void __launch_bounds__(kThreads)
    swiglu_kernel(const bf16* __restrict__ gate_up, int64_t vectors, int64_t per_row, bf16* __restrict__ out) {
  const Place place(per_row);
  if (place.index >= vectors) return;
  const uint4 gate = load_vector(gate_up + place.gate), up = load_vector(gate_up + place.gate + per_row * kVector);
  float g[kVector], u[kVector];
  unpack(gate, g);
  unpack(up, u);
#pragma unroll
  for (int e = 0; e < kVector; ++e) u[e] = silu_times(g[e], sigmoid(g[e]), u[e]);
  store_vector(out + place.out, pack(u));
}

// No __restrict__ on the two that may be one.
__global__ void __launch_bounds__(kThreads)
    swiglu_backward_kernel(const bf16* __restrict__ dout, const bf16* gate_up, int64_t vectors, int64_t per_row,
                           bf16* dgate_up, bf16* __restrict__ out) {
  const Place place(per_row);
  if (place.index >= vectors) return;
  const int64_t up_at = place.gate + per_row * kVector;
  const uint4 gate = load_vector(gate_up + place.gate), up = load_vector(gate_up + up_at),
              grad = load_vector(dout + place.out);
  float g[kVector], u[kVector], d[kVector], y[kVector];
  unpack(gate, g);
  unpack(up, u);
  unpack(grad, d);
#pragma unroll
  for (int e = 0; e < kVector; ++e) {
    const float s = sigmoid(g[e]), silu = g[e] * s;
    y[e] = silu_times(g[e], s, u[e]);
    const float slope = s + silu * (1.0f - s);
    g[e] = d[e] * u[e] * slope;
    u[e] = d[e] * silu;
  }
  store_vector(dgate_up + place.gate, pack(g));
  store_vector(dgate_up + up_at, pack(u));
  if (out != nullptr) store_vector(out + place.out, pack(y));
}

}  // namespace

cudaError_t swiglu(const bf16* gate_up, int64_t tokens, int64_t intermediate, bf16* out, cudaStream_t stream) {
  if (intermediate % kVector != 0) return cudaErrorInvalidValue;
  const int64_t per_row = intermediate / kVector, vectors = tokens * per_row;
  if (vectors == 0) return cudaSuccess;
  swiglu_kernel<<<static_cast<unsigned>(ceil_div(vectors, kThreads)), kThreads, 0, stream>>>(gate_up, vectors, per_row,
                                                                                             out);
  return cudaGetLastError();
}

cudaError_t swiglu_backward(const bf16* dout, const bf16* gate_up, int64_t tokens, int64_t intermediate, bf16* dgate_up,
                            bf16* out, cudaStream_t stream) {
  if (intermediate % kVector != 0) return cudaErrorInvalidValue;
  const int64_t per_row = intermediate / kVector, vectors = tokens * per_row;
  if (vectors == 0) return cudaSuccess;
  swiglu_backward_kernel<<<static_cast<unsigned>(ceil_div(vectors, kThreads)), kThreads, 0, stream>>>(
      dout, gate_up, vectors, per_row, dgate_up, out);
  return cudaGetLastError();
}

}  // namespace tandem::cuda
