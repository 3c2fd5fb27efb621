// Marks are events; work beside other work has a stream of its own.
#include <c10/cuda/CUDAGuard.h>

#include "kernels/cuda/device_table.h"
#include "kernels/cuda/torch_args.h"

namespace tandem::cuda {
namespace {

struct Event {
  cudaEvent_t event = nullptr;
  ~Event() {
    if (event != nullptr) cudaEventDestroy(event);
  }
};

}  // namespace

kernels::Mark mark(const at::Tensor&) {
  const auto made = std::make_shared<Event>();
  launched(cudaEventCreateWithFlags(&made->event, cudaEventDisableTiming), "mark");
  launched(cudaEventRecord(made->event, stream()), "mark");
  return made;
}

// Of high priority: what crosses between GPUs takes few multiprocessors and should have them as they come free.
void run_beside(const at::Tensor&, const kernels::Mark& after, const std::function<void()>& work) {
  thread_local const c10::cuda::CUDAStream side = c10::cuda::getStreamFromPool(/*isHighPriority=*/true);
  const c10::cuda::CUDAStreamGuard guard(side);
  if (after) launched(cudaStreamWaitEvent(side.stream(), static_cast<const Event*>(after.get())->event, 0), "wait");
  work();
  launched(cudaStreamSynchronize(side.stream()), "synchronize");
}

}  // namespace tandem::cuda
