#include "model/linear.h"

#include "base/error.h"
#include "kernels/kernels.h"

namespace tandem {
namespace {

const at::Tensor kNoBias;

at::Tensor matrix(int64_t rows, int64_t columns, const at::Tensor& like) {
  return kernels::empty({rows, columns}, like);
}

at::Tensor product(const at::Tensor& x_TE, const at::Tensor& weight_NE) {  // x · weightᵀ
  at::Tensor out = matrix(x_TE.size(0), weight_NE.size(0), x_TE);
  kernels::linear(x_TE, weight_NE, kNoBias, out);
  return out;
}

at::Tensor back_product(const at::Tensor& dout_TN, const at::Tensor& weight_NE) {  // dout · weight
  at::Tensor dx = matrix(dout_TN.size(0), weight_NE.size(1), dout_TN);
  kernels::linear_backward_input(dout_TN, weight_NE, dx);
  return dx;
}

// The gradient of b · a · x.
at::Tensor scaled_part(const Adapter& adapter, const at::Tensor& dout_TN) {
  at::Tensor part_TM = matrix(dout_TN.size(0), adapter.b_MR.size(0), dout_TN);
  kernels::take_columns(dout_TN, adapter.first, adapter.scale(), part_TM);
  return part_TM;
}

}  // namespace

void linear(const Linear& layer, const at::Tensor& x, at::Tensor& out) {
  kernels::linear(x, layer.weight_NE, layer.bias_N, out);
  for (const Adapter& adapter : layer.adapters)
    kernels::add_to_columns(out, adapter.first, adapter.scale(), product(product(x, adapter.a_RE), adapter.b_MR));
}

void linear_backward_input(const Linear& layer, const at::Tensor& dout, at::Tensor& dx) {
  kernels::linear_backward_input(dout, layer.weight_NE, dx);
  for (const Adapter& adapter : layer.adapters)
    kernels::add(dx, back_product(back_product(scaled_part(adapter, dout), adapter.b_MR), adapter.a_RE));
}

void linear_backward_weight(const Linear& layer, const at::Tensor& dout, const at::Tensor& x, Linear& gradient) {
  kernels::linear_backward_weight(dout, x, gradient.weight_NE, gradient.bias_N);
  check(gradient.adapters.size() == layer.adapters.size(), "the gradients are of other adapters");
  at::Tensor no_bias;
  for (size_t i = 0; i < layer.adapters.size(); ++i) {
    const Adapter& adapter = layer.adapters[i];
    const at::Tensor part = scaled_part(adapter, dout);
    kernels::linear_backward_weight(part, product(x, adapter.a_RE), gradient.adapters[i].b_MR, no_bias);
    kernels::linear_backward_weight(back_product(part, adapter.b_MR), x, gradient.adapters[i].a_RE, no_bias);
  }
}

}  // namespace tandem
