#include <ATen/Context.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/util/Exception.h>

#include "kernels/cuda/device_table.h"
#include "kernels/cuda/torch_args.h"
#include "kernels/device_ops.h"

namespace tandem::cuda {
namespace {

// A row's product must not depend on how many rows there are: no split of the inner dimension, no reduced-precision
// sums (docs/numerics.md).
void pin_products() {
  class Silent : public c10::WarningHandler {  // libtorch calls the choice of a library experimental
    void process(const c10::Warning&) override {}
  } silent;
  const c10::WarningUtils::WarningHandlerGuard guard(&silent);
  at::globalContext().setBlasPreferredBackend(at::BlasBackend::Cublaslt);
  at::globalContext().setAllowBF16ReductionCuBLAS(false, /*allow_splitk=*/false);
  at::globalContext().lazyInitDevice(at::kCUDA);
}

constexpr kernels::DeviceOps kOps = {
    .synchronize = &synchronize,
    .device_memory = &device_memory,
    .upload = &upload,
    .reset_peak_memory = &reset_peak_memory,
    .mark = &mark,
    .run_beside = &run_beside,
    .place = &place,
    .embedding = &embedding,
    .embedding_backward = &embedding_backward,
    .gather_rows = &gather_rows,
    .gather_rows_backward = &gather_rows_backward,
    .rms_norm = &rms_norm,
    .add_rms_norm = &add_rms_norm,
    .rms_norm_backward = &rms_norm_backward,
    .linear = &linear,
    .linear_backward_input = &linear_backward_input,
    .linear_backward_weight = &linear_backward_weight,
    .add = &add,
    .add_to_columns = &add_to_columns,
    .take_columns = &take_columns,
    .attend = &attend,
    .attend_backward = &attend_backward,
    .copy_kv_blocks = &copy_kv_blocks,
    .swiglu = &swiglu,
    .swiglu_backward = &swiglu_backward,
    .target_logprobs = &target_logprobs,
    .target_logprobs_backward = &target_logprobs_backward,
    .draw = &draw,
    .record_decode = &record_decode,
    .adamw = &adamw,
    .spread_rounded = &spread_rounded,
    .block_squares = &block_squares,
    .accumulate = &accumulate,
};

}  // namespace

void synchronize(const at::Tensor&) { launched(cudaStreamSynchronize(stream()), "synchronize"); }

kernels::DeviceMemory device_memory(const at::Tensor& like) {
  using c10::CachingAllocator::StatType;
  const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(like.device().index());
  size_t free = 0, total = 0;
  launched(cudaMemGetInfo(&free, &total), "memory");
  const auto all = static_cast<size_t>(StatType::AGGREGATE);
  return {stats.allocated_bytes[all].current, stats.reserved_bytes[all].current, stats.allocated_bytes[all].peak,
          stats.reserved_bytes[all].peak, static_cast<int64_t>(total)};
}

void reset_peak_memory(const at::Tensor& like) {
  c10::cuda::CUDACachingAllocator::resetPeakStats(like.device().index());
}

extern "C" __attribute__((visibility("default"))) const kernels::DeviceOps* tandem_device_ops() {
  pin_products();
  return &kOps;
}

}  // namespace tandem::cuda
