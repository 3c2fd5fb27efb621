// What the CUDA test programs share: device arrays, failing loudly, random numbers, timing. No framework.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <source_location>
#include <utility>
#include <vector>

namespace tandem::cuda::test {

using bf16 = __nv_bfloat16;

inline void must(cudaError_t error, std::source_location at = std::source_location::current()) {
  if (error == cudaSuccess) return;
  std::printf("CUDA error at line %u: %s\n", at.line(), cudaGetErrorString(error));
  std::exit(1);
}

template <class T>
class Device {  // an array in device memory
 public:
  Device() = default;
  explicit Device(size_t count) : size_(count) { must(cudaMalloc(&data_, std::max<size_t>(count, 1) * sizeof(T))); }
  explicit Device(const std::vector<T>& host) : Device(host.size()) {
    must(cudaMemcpy(data_, host.data(), size_ * sizeof(T), cudaMemcpyHostToDevice));
  }
  Device(Device&& other) noexcept : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  Device& operator=(Device&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~Device() { cudaFree(data_); }
  T* get() const { return data_; }
  size_t size() const { return size_; }
  std::vector<T> host() const {
    std::vector<T> values(size_);
    must(cudaMemcpy(values.data(), data_, size_ * sizeof(T), cudaMemcpyDeviceToHost));
    return values;
  }
  void poison() { must(cudaMemset(data_, 0xff, size_ * sizeof(T))); }  // NaN in every float

 private:
  T* data_ = nullptr;
  size_t size_ = 0;
};

__device__ inline uint64_t mix_bits(uint64_t z) {
  z += 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}
__device__ inline float gaussian(uint64_t seed, uint64_t index) {
  const uint64_t h = mix_bits(mix_bits(seed) ^ index);
  const float u = static_cast<float>((h >> 40) + 1) * (1.0f / 16777217.0f);
  return sqrtf(-2.0f * logf(u)) * cospif(2.0f * static_cast<float>(h & 0xffffff) * (1.0f / 16777216.0f));
}
static __global__ void fill_kernel(bf16* x, size_t n, uint64_t seed, float scale) {
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < n; i += size_t{gridDim.x} * blockDim.x)
    x[i] = __float2bfloat16(scale * gaussian(seed, i));
}
inline void fill(const Device<bf16>& x, uint64_t seed, float scale) {
  fill_kernel<<<1024, 256>>>(x.get(), x.size(), seed, scale);
  must(cudaGetLastError());
}

// Median microseconds of one call.
inline double time_us(const std::function<void()>& call, int calls = 10) {
  cudaEvent_t begin, end;
  must(cudaEventCreate(&begin));
  must(cudaEventCreate(&end));
  for (int i = 0; i < 3; ++i) call();
  std::vector<double> times;
  for (int repeat = 0; repeat < 5; ++repeat) {
    must(cudaEventRecord(begin));
    for (int i = 0; i < calls; ++i) call();
    must(cudaEventRecord(end));
    must(cudaEventSynchronize(end));
    float ms = 0;
    must(cudaEventElapsedTime(&ms, begin, end));
    times.push_back(ms * 1e3 / calls);
  }
  must(cudaEventDestroy(begin));
  must(cudaEventDestroy(end));
  std::sort(times.begin(), times.end());
  return times[2];
}

// Bytes read and written a second by a large device-to-device copy.
inline double copy_ceiling() {
  const size_t bytes = size_t{4} << 30;
  Device<bf16> from(bytes / 2), to(bytes / 2);
  fill(from, 9, 1.0f);
  const auto copy = [&] { must(cudaMemcpyAsync(to.get(), from.get(), bytes, cudaMemcpyDeviceToDevice)); };
  return 2.0 * static_cast<double>(bytes) / time_us(copy, 3) * 1e6;
}

}  // namespace tandem::cuda::test
