// What the device tests share: buffers that begin as NaN, random inputs, comparison with fp64 references, timing.
// A program runs one list of cases: each case compares, and times too when asked (--bench). No torch, no GoogleTest.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::cuda::test {

using bf16 = __nv_bfloat16;

inline void must(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  std::printf("FATAL %s: %s\n", what, cudaGetErrorString(status));
  std::exit(2);
}

inline float to_float(float x) { return x; }
inline float to_float(double x) { return static_cast<float>(x); }
inline float to_float(bf16 x) {
  uint16_t half;
  std::memcpy(&half, &x, sizeof half);
  const uint32_t bits = uint32_t{half} << 16;
  float out;
  std::memcpy(&out, &bits, sizeof out);
  return out;
}

template <class T>
class Buffer {
 public:
  explicit Buffer(int64_t size) : size_(size) {
    must(cudaMalloc(&data_, std::max<size_t>(bytes(), 16)), "cudaMalloc");
    poison();
  }
  explicit Buffer(const std::vector<T>& host) : Buffer(static_cast<int64_t>(host.size())) { upload(host); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { cudaFree(data_); }

  T* get() const { return data_; }
  operator T*() const { return data_; }
  int64_t size() const { return size_; }
  size_t bytes() const { return static_cast<size_t>(size_) * sizeof(T); }
  void poison() { must(cudaMemset(data_, 0xff, bytes()), "poison"); }
  void zero() { must(cudaMemset(data_, 0, bytes()), "zero"); }
  void upload(const std::vector<T>& host) {
    must(cudaMemcpy(data_, host.data(), bytes(), cudaMemcpyHostToDevice), "upload");
  }
  void copy_from(const Buffer& other) {
    must(cudaMemcpy(data_, other.data_, bytes(), cudaMemcpyDeviceToDevice), "copy");
  }
  std::vector<T> download(int64_t first = 0, int64_t count = -1) const {
    std::vector<T> host(static_cast<size_t>(count < 0 ? size_ - first : count));
    must(cudaMemcpy(host.data(), data_ + first, host.size() * sizeof(T), cudaMemcpyDeviceToHost), "download");
    return host;
  }
  std::vector<double> values(int64_t first = 0, int64_t count = -1) const {
    std::vector<double> out;
    for (const T& x : download(first, count)) out.push_back(to_float(x));
    return out;
  }

 private:
  int64_t size_;
  T* data_ = nullptr;
};

__host__ __device__ inline uint64_t hashed(uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

template <class T>
__global__ void fill_kernel(T* out, int64_t size, uint64_t seed, float scale, float shift) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= size) return;
  const uint64_t h = hashed(seed * 0x10001 + static_cast<uint64_t>(i));
  const float u = (static_cast<float>(h >> 40) + 0.5f) * 0x1p-24f, v = static_cast<float>(h & 0xffffff) * 0x1p-24f;
  out[i] = static_cast<T>(shift + scale * sqrtf(-2.0f * logf(u)) * cospif(2.0f * v));
}

// Normal numbers; another call, other numbers.
template <class T>
void randomize(const Buffer<T>& buffer, float scale = 1.0f, float shift = 0.0f) {
  static uint64_t seed = 0;
  if (buffer.size() == 0) return;
  fill_kernel<<<static_cast<unsigned>((buffer.size() + 255) / 256), 256>>>(buffer.get(), buffer.size(), ++seed, scale,
                                                                           shift);
  must(cudaDeviceSynchronize(), "fill");
}

class Report {
 public:
  bool bench = false;
  double copy_ceiling = 0;  // bytes/s, read plus written

  void begin(const std::string& name) { case_ = name; }
  void check(bool ok, const std::string& what) {
    ++checks_;
    if (ok) return;
    ++failures_;
    if (failures_ <= 40) std::printf("FAILED %s: %s\n", case_.c_str(), what.c_str());
  }
  // |out − reference| ≤ relative · |reference| + absolute, for every element.
  void close(const std::vector<double>& out, const std::vector<double>& reference, double relative, double absolute,
             const std::string& what) {
    check(out.size() == reference.size(), what + ": another size");
    int64_t bad = 0;
    std::string first;
    for (size_t i = 0; i < std::min(out.size(), reference.size()); ++i) {
      if (std::abs(out[i] - reference[i]) <= relative * std::abs(reference[i]) + absolute) continue;
      if (bad++ == 0)
        first = " [" + std::to_string(i) + "] " + std::to_string(out[i]) + " for " + std::to_string(reference[i]);
    }
    check(bad == 0, what + ": " + std::to_string(bad) + " of " + std::to_string(out.size()) + " differ," + first);
  }
  template <class T>
  void same_bits(const std::vector<T>& a, const std::vector<T>& b, const std::string& what) {
    check(a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0, what + ": bits differ");
  }
  // Times `launch` and prints what it moved (bytes read plus written) against the ceiling.
  void time(const std::string& shape, double bytes, const std::function<cudaError_t()>& launch) const {
    if (!bench) return;
    const double seconds = median_seconds(launch);
    std::printf("{\"case\": \"%s\", \"shape\": \"%s\", \"us\": %.1f, \"gb_per_s\": %.0f, \"of_copy\": %.3f}\n",
                case_.c_str(), shape.c_str(), seconds * 1e6, bytes / seconds * 1e-9, bytes / seconds / copy_ceiling);
  }
  static double median_seconds(const std::function<cudaError_t()>& launch, int repeats = 15) {
    cudaEvent_t start, stop;
    must(cudaEventCreate(&start), "event");
    must(cudaEventCreate(&stop), "event");
    std::vector<float> times;
    for (int i = 0; i < repeats + 3; ++i) {
      must(cudaEventRecord(start), "record");
      must(launch(), "launch");
      must(cudaEventRecord(stop), "record");
      must(cudaEventSynchronize(stop), "run");
      float milliseconds = 0;
      must(cudaEventElapsedTime(&milliseconds, start, stop), "elapsed");
      if (i >= 3) times.push_back(milliseconds);
    }
    cudaEventDestroy(start);
    cudaEventDestroy(stop);
    std::nth_element(times.begin(), times.begin() + repeats / 2, times.end());
    return times[repeats / 2] * 1e-3;
  }
  void measure_ceiling() {
    const Buffer<float> from(int64_t{1} << 28), to(int64_t{1} << 28);
    randomize(from);
    const double seconds = median_seconds(
        [&] { return cudaMemcpyAsync(to.get(), from.get(), from.bytes(), cudaMemcpyDeviceToDevice, nullptr); });
    copy_ceiling = 2.0 * static_cast<double>(from.bytes()) / seconds;
    std::printf("{\"case\": \"copy ceiling\", \"gb_per_s\": %.0f}\n", copy_ceiling * 1e-9);
  }
  int finish() const {
    std::printf("%lld checks, %lld failed\n", static_cast<long long>(checks_), static_cast<long long>(failures_));
    return failures_ == 0 ? 0 : 1;
  }

 private:
  std::string case_;
  int64_t checks_ = 0, failures_ = 0;
};

struct Case {
  std::string name;
  bool for_bench;  // large: left out with --small
  std::function<void(Report&)> run;
};

// --bench also times; --small leaves the large cases out (for a memory checker).
inline int run_cases(const std::vector<Case>& cases, int argc, char** argv) {
  Report report;
  bool small = false;
  for (int i = 1; i < argc; ++i) {
    report.bench = report.bench || std::string_view(argv[i]) == "--bench";
    small = small || std::string_view(argv[i]) == "--small";
  }
  if (report.bench) report.measure_ceiling();
  for (const Case& c : cases) {
    if (small && c.for_bench) continue;
    report.begin(c.name);
    const bool bench = report.bench;
    report.bench = bench && c.for_bench;
    c.run(report);
    report.bench = bench;
    must(cudaDeviceSynchronize(), c.name.c_str());
  }
  return report.finish();
}

// What one rounding to bf16 may cost, and a little for fp32 arithmetic before it.
constexpr double kBf16 = 0x1p-8;

// A few rows of a tensor: the first, the last, some between.
inline std::vector<int64_t> some_rows(int64_t rows, int64_t wanted = 6) {
  std::vector<int64_t> chosen;
  for (int64_t i = 0; i < std::min(rows, wanted); ++i)
    chosen.push_back(rows <= wanted ? i : i * (rows - 1) / (wanted - 1));
  return chosen;
}

}  // namespace tandem::cuda::test
