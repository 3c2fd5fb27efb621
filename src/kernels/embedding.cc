#include <cstring>

#include "kernels/kernels.h"
#include "kernels/parallel_for.h"
#include "kernels/tensor_view.h"

namespace tandem::kernels {

void embedding(std::span<const int32_t> ids, const at::Tensor& weight, at::Tensor& out) {
  const int64_t rows = static_cast<int64_t>(ids.size()), width = weight.size(1);
  check_shape(out, {rows, width});
  const float* w = f32(weight);
  float* y = f32(out);
  for (int64_t i = 0; i < rows; ++i) {
    check(ids[i] >= 0 && ids[i] < weight.size(0), "token id outside the vocabulary");
    std::memcpy(y + i * width, w + ids[i] * width, static_cast<size_t>(width) * sizeof(float));
  }
}

void embedding_backward(std::span<const int32_t> ids, const at::Tensor& dout, at::Tensor& dweight) {
  const int64_t rows = static_cast<int64_t>(ids.size()), width = dweight.size(1);
  check_shape(dout, {rows, width});
  const float* dy = f32(dout);
  float* dw = f32(dweight);
  // Columns are split over threads, so that equal ids add up in the order of the batch.
  parallel_for(width, 64, [&](int64_t first, int64_t last) {
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = first; j < last; ++j) dw[ids[i] * width + j] += dy[i * width + j];
  });
}

}  // namespace tandem::kernels
