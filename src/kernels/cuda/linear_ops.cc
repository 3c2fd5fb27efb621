// Matrix products by cuBLASLt through ATen, pinned by table.cc so that a row's bits do not depend on their number.
#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/sum.h>

#include "kernels/cuda/device_table.h"
#include "kernels/cuda/torch_args.h"

namespace tandem::cuda {
namespace {

// What was found row-invariant (docs/numerics.md): from 2 rows, since one row is a different kind of product, to this
// many. More are cut, fewer padded: to 24, and to 128 where the inner dimension is long, because below that cuBLASLt
// without split-K is 2 to 10 times slower than at that size (docs/performance.md).
constexpr int64_t kMostRows = 8192;

int64_t least_rows(const at::Tensor& weight) { return weight.size(1) >= 3 * weight.size(0) ? 128 : 24; }

void product(const at::Tensor& x, const at::Tensor& weight, at::Tensor out) {
  if (out.scalar_type() == x.scalar_type()) {
    at::mm_out(out, x, weight.t());
  } else {
    at::mm_out(out, x, weight.t(), out.scalar_type());
  }
}

}  // namespace

void linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, at::Tensor& out) {
  const int64_t rows = x.size(0);
  if (rows == 0) return;
  if (const int64_t least = least_rows(weight); rows < least) {
    at::Tensor padded = at::empty({least, x.size(1)}, x.options());
    padded.narrow(0, rows, least - rows).zero_();
    padded.narrow(0, 0, rows).copy_(x);
    at::Tensor all = at::empty({least, out.size(1)}, out.options());
    product(padded, weight, all);
    out.copy_(all.narrow(0, 0, rows));
  } else {
    const int64_t pieces = (rows + kMostRows - 1) / kMostRows;
    for (int64_t i = 0; i < pieces; ++i) {
      const int64_t first = rows * i / pieces, count = rows * (i + 1) / pieces - first;
      product(x.narrow(0, first, count), weight, out.narrow(0, first, count));
    }
  }
  if (bias.defined()) out.add_(bias);
}

void linear_backward_input(const at::Tensor& dout, const at::Tensor& weight, at::Tensor& dx) {
  at::mm_out(dx, dout, weight);
}

void linear_backward_weight(const at::Tensor& dout, const at::Tensor& x, at::Tensor& dweight, at::Tensor& dbias) {
  at::addmm_out(dweight, dweight, dout.t(), x, at::kFloat);
  if (dbias.defined()) dbias.add_(at::sum(dout, at::IntArrayRef{0}, /*keepdim=*/false, at::kFloat));
}

// Elementwise in fp32 with one rounding, so a row's bits are its own.
void add_to_columns(at::Tensor& x, int64_t first, float factor, const at::Tensor& y) {
  x.narrow(1, first, y.size(1)).add_(y, factor);
}

void take_columns(const at::Tensor& x, int64_t first, float factor, at::Tensor& y) {
  y.copy_(x.narrow(1, first, y.size(1)));
  y.mul_(factor);
}

}  // namespace tandem::cuda
