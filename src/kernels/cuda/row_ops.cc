// Ops on rows: embedding, gather, norms, activation.
#include <algorithm>

#include "kernels/cuda/batch.h"
#include "kernels/cuda/device_table.h"
#include "kernels/cuda/norm.h"
#include "kernels/cuda/swiglu.h"
#include "kernels/cuda/torch_args.h"

namespace tandem::cuda {

void embedding(const PlacedBatch& batch, const at::Tensor& weight, at::Tensor& out) {
  launched(gather_rows(half(weight), on_gpu(batch).ids, out.size(0), out.size(1), half(out), stream()), "embedding");
}

void embedding_backward(const PlacedBatch& batch, const at::Tensor& dout, at::Tensor& dweight) {
  launched(embedding_backward(half(dout), on_gpu(batch).id_groups, dout.size(1), single(dweight), stream()),
           "embedding_backward");
}

void gather_rows(const at::Tensor& x, std::span<const int32_t> rows, at::Tensor& out) {
  Upload upload;
  upload.add(rows);
  const at::Tensor index = upload.send();
  launched(gather_rows(half(x), at_offset<int32_t>(index, 0), out.size(0), out.size(1), half(out), stream()),
           "gather_rows");
}

// The kernel wants distinct rows: the k-th mention of each is the k-th launch, in the order of the batch.
void gather_rows_backward(const at::Tensor& dout, std::span<const int32_t> rows, at::Tensor& dx) {
  std::vector<std::vector<int32_t>> sources, targets;
  std::vector<int32_t> mentions(static_cast<size_t>(dx.size(0)), 0);
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto turn = static_cast<size_t>(mentions[rows[i]]++);
    if (turn == sources.size()) sources.emplace_back(), targets.emplace_back();
    sources[turn].push_back(static_cast<int32_t>(i));
    targets[turn].push_back(rows[i]);
  }
  for (size_t turn = 0; turn < sources.size(); ++turn) {
    Upload upload;
    const size_t to = upload.add(targets[turn]);
    const at::Tensor index = upload.send();
    at::Tensor part = dout;
    if (sources.size() > 1) {
      part = at::empty({static_cast<int64_t>(sources[turn].size()), dout.size(1)}, dout.options());
      gather_rows(dout, sources[turn], part);
    }
    launched(
        scatter_add_rows(half(part), at_offset<int32_t>(index, to), part.size(0), part.size(1), half(dx), stream()),
        "gather_rows_backward");
  }
}

void rms_norm(const at::Tensor& x, const at::Tensor& weight, float eps, at::Tensor& out) {
  launched(rms_norm(half(x), half(weight), eps, x.size(0), x.size(1), half(out), stream()), "rms_norm");
}

void add_rms_norm(at::Tensor& x, const at::Tensor& y, const at::Tensor& weight, float eps, at::Tensor& out) {
  launched(add_rms_norm(half(x), half(y), half(weight), eps, x.size(0), x.size(1), half(out), stream()),
           "add_rms_norm");
}

void rms_norm_backward(const at::Tensor& dout, const at::Tensor& x, const at::Tensor& weight, float eps, at::Tensor& dx,
                       at::Tensor& dweight) {
  const auto workspace = device_bytes(static_cast<int64_t>(rms_norm_backward_workspace_bytes(x.size(0), x.size(1))));
  launched(rms_norm_backward(half(dout), half(x), half(weight), eps, x.size(0), x.size(1), half(dx),
                             single_or_null(dweight), workspace.data_ptr(), stream()),
           "rms_norm_backward");
}

void add(at::Tensor& x, const at::Tensor& y) { launched(add(half(x), half(y), x.numel(), stream()), "add"); }

void swiglu(const at::Tensor& gate_up, at::Tensor& out) {
  launched(swiglu(half(gate_up), out.size(0), out.size(1), half(out), stream()), "swiglu");
}

void swiglu_backward(const at::Tensor& dout, const at::Tensor& gate_up, at::Tensor& dgate_up, at::Tensor& out) {
  launched(swiglu_backward(half(dout), half(gate_up), dout.size(0), dout.size(1), half(dgate_up), half(out), stream()),
           "swiglu_backward");
}

}  // namespace tandem::cuda
