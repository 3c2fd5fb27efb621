#include "train/value_head.h"

#include <ATen/ops/zeros_like.h>

namespace tandem {
namespace {

// One output feature is no work for a product kernel of a GPU: multiply and sum.
at::Tensor device_values(const DecoderWeights& weights, const at::Tensor& normed) {
  const at::Tensor products = normed.to(at::kFloat).mul(weights.value_head_1E.to(at::kFloat));
  return products.sum(1, /*keepdim=*/true).add(weights.value_bias_1.to(at::kFloat)).to(at::kCPU);
}

at::Tensor backward(const Decoder& decoder, const at::Tensor& slopes_R1, const at::Tensor& normed,
                    DecoderWeights& gradients) {
  if (!decoder.on_device()) {
    at::Tensor dnormed = kernels::empty(normed.sizes());
    kernels::linear_backward_input(slopes_R1, decoder.weights().value_head_1E, dnormed);
    kernels::linear_backward_weight(slopes_R1, normed, gradients.value_head_1E, gradients.value_bias_1);
    return dnormed;
  }
  const at::Tensor slopes = slopes_R1.to(normed.device());
  gradients.value_head_1E.add_(slopes.mul(normed.to(at::kFloat)).sum(0, /*keepdim=*/true));
  gradients.value_bias_1.add_(slopes.sum(0));
  return slopes.mul(decoder.weights().value_head_1E.to(at::kFloat)).to(normed.scalar_type());
}

}  // namespace

at::Tensor row_values(const Decoder& decoder, const at::Tensor& normed_RE) {
  if (decoder.on_device()) return device_values(decoder.weights(), normed_RE);
  at::Tensor values_R1 = kernels::empty({normed_RE.size(0), 1});
  kernels::linear(normed_RE, decoder.weights().value_head_1E, decoder.weights().value_bias_1, values_R1);
  return values_R1;
}

HeadPass value_head_pass(const Decoder& decoder, RowSlopes slopes, DecoderWeights& gradients) {
  return [&decoder, &gradients, slopes = std::move(slopes)](size_t first, SampleList, const PackedBatch& batch,
                                                            const at::Tensor& x) {
    const at::Tensor normed = decoder.final_norm(x, batch.rows), predicted = row_values(decoder, normed);
    const at::Tensor slopes_R1 = kernels::zeros(predicted.sizes());
    slopes(first, batch, values(predicted), values(slopes_R1));
    const at::Tensor dnormed = backward(decoder, slopes_R1, normed, gradients);
    at::Tensor dx = at::zeros_like(x);
    decoder.final_norm_backward(dnormed, x, batch.rows, dx, gradients);
    return dx;
  };
}

}  // namespace tandem
