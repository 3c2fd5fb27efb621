// Between tensors and the launchers: checked raw pointers, the current stream, workspaces, errors. For the *_ops.cc
// files of this folder, which together fill kernels/device_ops.h.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/error.h"
#include "kernels/cuda/types.h"

namespace tandem::cuda {

inline cudaStream_t stream() { return c10::cuda::getCurrentCUDAStream().stream(); }

inline void launched(cudaError_t error, const char* op) {
  if (error != cudaSuccess)
    throw std::runtime_error(std::string("GPU kernel ") + op + ": " + cudaGetErrorString(error));
}

inline bf16* half(const at::Tensor& tensor) {
  check(tensor.scalar_type() == at::kBFloat16 && tensor.is_contiguous() && tensor.is_cuda(),
        "a contiguous bf16 tensor on the GPU is wanted");
  return static_cast<bf16*>(tensor.data_ptr());
}
inline bf16* half_or_null(const at::Tensor& tensor) { return tensor.defined() ? half(tensor) : nullptr; }

inline float* single(const at::Tensor& tensor) {
  check(tensor.scalar_type() == at::kFloat && tensor.is_contiguous() && tensor.is_cuda(),
        "a contiguous fp32 tensor on the GPU is wanted");
  return static_cast<float*>(tensor.data_ptr());
}
inline float* single_or_null(const at::Tensor& tensor) { return tensor.defined() ? single(tensor) : nullptr; }

inline at::Tensor device_bytes(int64_t bytes) {
  return at::empty({std::max<int64_t>(bytes, 1)}, at::device(at::kCUDA).dtype(at::kByte));
}

// Host arrays that go to the device in one copy. Offsets are 16-byte borders.
class Upload {
 public:
  template <class T>
  size_t add(std::span<const T> values) {
    const size_t offset = (bytes_.size() + 15) / 16 * 16;
    bytes_.resize(offset + values.size_bytes());
    if (!values.empty()) std::memcpy(bytes_.data() + offset, values.data(), values.size_bytes());
    return offset;
  }
  template <class T>
  size_t add(const std::vector<T>& values) {
    return add(std::span<const T>(values));
  }
  // The host arrays may go once it returns: the copy has left pageable memory.
  at::Tensor send() const {
    at::Tensor buffer = device_bytes(static_cast<int64_t>(bytes_.size()));
    launched(cudaMemcpyAsync(buffer.data_ptr(), bytes_.data(), bytes_.size(), cudaMemcpyHostToDevice, stream()),
             "upload");
    return buffer;
  }

 private:
  std::vector<std::byte> bytes_;
};

template <class T>
T* at_offset(const at::Tensor& buffer, size_t offset) {
  return reinterpret_cast<T*>(static_cast<std::byte*>(buffer.data_ptr()) + offset);
}

template <class T>
void download(const void* from, std::span<T> to) {
  launched(cudaMemcpyAsync(to.data(), from, to.size_bytes(), cudaMemcpyDeviceToHost, stream()), "download");
  launched(cudaStreamSynchronize(stream()), "synchronize");
}

}  // namespace tandem::cuda
