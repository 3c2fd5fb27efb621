// The kernels that a GPU runs in a traced step, by CUPTI's activity records (docs.nvidia.com/cupti). The library comes
// with libtorch; where it or the GPU is missing there are none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "observe/trace.h"

namespace tandem {

// The few calls of libcupti that are used, by its names and types; each returns 0 for success.
struct CuptiCalls {
  using RequestBuffer = void (*)(uint8_t** buffer, size_t* size, size_t* max_records);
  using TakeBuffer = void (*)(void* context, uint32_t stream, uint8_t* buffer, size_t size, size_t valid);
  int (*register_callbacks)(RequestBuffer, TakeBuffer) = nullptr;                 // cuptiActivityRegisterCallbacks
  int (*enable)(int kind) = nullptr;                                              // cuptiActivityEnable
  int (*disable)(int kind) = nullptr;                                             // cuptiActivityDisable
  int (*flush)(uint32_t flags) = nullptr;                                         // cuptiActivityFlushAll
  int (*next_record)(uint8_t* buffer, size_t valid, uint8_t** record) = nullptr;  // cuptiActivityGetNextRecord
  int (*timestamp)(uint64_t* ns) = nullptr;                                       // cuptiGetTimestamp
};
std::optional<CuptiCalls> load_cupti(const char* library = "libcupti.so.13");

// Records from start() to stop(). One at a time in a process.
class GpuKernelTrace {
 public:
  explicit GpuKernelTrace(std::optional<CuptiCalls> calls) : calls_(calls) {}

  void start();
  // Waits for nothing: what runs on must have ended. Kernels become spans of the lane "kernels", the first 100,000 of
  // them; returns how many were left out.
  size_t stop(TraceRecorder& recorder);

 private:
  std::optional<CuptiCalls> calls_;
  bool recording_ = false;
};

}  // namespace tandem
