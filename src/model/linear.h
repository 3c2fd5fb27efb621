// A linear layer and what may be added to it. The same struct holds gradients: what is left undefined is not trained.
// Shapes: T tokens, E inputs, N outputs, R rank, M outputs of an adapter.
#pragma once

#include <ATen/core/Tensor.h>

#include <string_view>
#include <vector>

namespace tandem {

// Low-rank addition (LoRA, Hu et al. 2021, arXiv:2106.09685) to outputs [first, first + M): alpha / R · b · a.
struct Adapter {
  std::string_view module;  // Hugging Face's name of the projection: q_proj ...; static text
  int64_t first = 0;        // q, k, v lie in one matrix, gate and up in another
  double alpha = 0;
  at::Tensor a_RE, b_MR;

  float scale() const { return static_cast<float>(alpha / static_cast<double>(a_RE.size(0))); }
};

struct Linear {
  at::Tensor weight_NE, bias_N;  // no bias: undefined
  std::vector<Adapter> adapters;
};

// out_TN = x · weightᵀ + bias + the adapters'. A row of the output depends on its own row of x alone, bit for bit.
void linear(const Linear& layer, const at::Tensor& x_TE, at::Tensor& out_TN);

// Sets dx_TE. `out` of the forward had the gradient dout_TN.
void linear_backward_input(const Linear& layer, const at::Tensor& dout_TN, at::Tensor& dx_TE);

// Adds into what `gradient` holds.
void linear_backward_weight(const Linear& layer, const at::Tensor& dout_TN, const at::Tensor& x_TE, Linear& gradient);

}  // namespace tandem
