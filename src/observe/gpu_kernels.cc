#include "observe/gpu_kernels.h"

#include <cxxabi.h>
#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

namespace tandem {
namespace {

constexpr int kConcurrentKernel = 10;  // CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL
constexpr uint32_t kForced = 1;        // CUPTI_ACTIVITY_FLAG_FLUSH_FORCED
constexpr size_t kBufferBytes = size_t{4} << 20, kAlignment = 8, kMostKernels = 100'000;

// The beginning of CUpti_ActivityKernel4 and all versions since (cupti_activity.h).
struct KernelRecord {
  uint32_t kind;
  uint8_t cache_config, shared_memory_config;
  uint16_t registers;
  uint32_t partitioned_cache[2];
  uint64_t start, end, completed;  // ns
  uint32_t device, context, stream;
  int32_t grid[3], block[3];
  int32_t static_shared, dynamic_shared;
  uint32_t local_memory[2], correlation;
  int64_t grid_id;
  const char* name;
};
static_assert(offsetof(KernelRecord, start) == 16 && offsetof(KernelRecord, name) == 104);

struct Kernel {
  uint64_t start, end;
  std::string name;
  double stream;
};

// CUPTI's callbacks carry no pointer of ours.
struct Gathered {
  std::mutex mutex;
  CuptiCalls calls;
  std::vector<Kernel> kernels;
  size_t left_out = 0;
};
Gathered& gathered() {
  static Gathered all;
  return all;
}

// Without the types of templates and arguments, which are longer than a screen.
std::string short_name(const char* mangled) {
  if (mangled == nullptr) return "kernel";
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> plain(abi::__cxa_demangle(mangled, nullptr, nullptr, &status),
                                                          &std::free);
  std::string name = status == 0 ? plain.get() : mangled;
  if (name.starts_with("void ")) name.erase(0, 5);
  constexpr std::string_view kUnnamed = "(anonymous namespace)::";
  for (size_t at; (at = name.find(kUnnamed)) != name.npos;) name.erase(at, kUnnamed.size());
  return name.substr(0, name.find_first_of("<("));
}

void request_buffer(uint8_t** buffer, size_t* size, size_t* max_records) {
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(kAlignment, kBufferBytes));
  *size = *buffer == nullptr ? 0 : kBufferBytes;
  *max_records = 0;  // as many as there is room for
}

void take_buffer(void*, uint32_t, uint8_t* buffer, size_t, size_t valid) {
  Gathered& all = gathered();
  const std::lock_guard lock(all.mutex);
  uint8_t* at = nullptr;
  while (valid > 0 && all.calls.next_record(buffer, valid, &at) == 0) {
    KernelRecord record;
    std::memcpy(&record, at, sizeof record);
    if (record.kind != kConcurrentKernel) continue;
    if (all.kernels.size() >= kMostKernels) {
      ++all.left_out;
    } else {
      all.kernels.push_back({record.start, record.end, short_name(record.name), static_cast<double>(record.stream)});
    }
  }
  std::free(buffer);
}

template <class Call>
bool find_call(void* library, const char* name, Call& call) {
  call = reinterpret_cast<Call>(::dlsym(library, name));
  return call != nullptr;
}

}  // namespace

std::optional<CuptiCalls> load_cupti(const char* library) {
  void* opened = ::dlopen(library, RTLD_LAZY | RTLD_LOCAL);
  if (opened == nullptr) return std::nullopt;
  CuptiCalls calls;
  const bool whole = find_call(opened, "cuptiActivityRegisterCallbacks", calls.register_callbacks) &&
                     find_call(opened, "cuptiActivityEnable", calls.enable) &&
                     find_call(opened, "cuptiActivityDisable", calls.disable) &&
                     find_call(opened, "cuptiActivityFlushAll", calls.flush) &&
                     find_call(opened, "cuptiActivityGetNextRecord", calls.next_record) &&
                     find_call(opened, "cuptiGetTimestamp", calls.timestamp);
  if (whole) return calls;
  ::dlclose(opened);
  return std::nullopt;
}

void GpuKernelTrace::start() {
  if (!calls_) return;
  {
    const std::lock_guard lock(gathered().mutex);
    gathered().calls = *calls_;
    gathered().kernels.clear();
    gathered().left_out = 0;
  }
  recording_ = calls_->register_callbacks(&request_buffer, &take_buffer) == 0 && calls_->enable(kConcurrentKernel) == 0;
}

size_t GpuKernelTrace::stop(TraceRecorder& recorder) {
  if (!std::exchange(recording_, false)) return 0;
  calls_->flush(kForced);
  calls_->disable(kConcurrentKernel);
  uint64_t gpu_now = 0;
  if (calls_->timestamp(&gpu_now) != 0) return 0;
  const auto now = TraceRecorder::Clock::now();
  const auto on_our_clock = [&](uint64_t ns) {
    return now - std::chrono::nanoseconds(static_cast<int64_t>(gpu_now) - static_cast<int64_t>(ns));
  };
  const std::lock_guard lock(gathered().mutex);
  for (const Kernel& kernel : gathered().kernels) {
    if (on_our_clock(kernel.start) < recorder.start()) continue;  // of before
    Metrics arguments;
    arguments.set("stream", kernel.stream);
    recorder.span("kernels", kernel.name, on_our_clock(kernel.start), on_our_clock(kernel.end), arguments);
  }
  gathered().kernels.clear();
  return gathered().left_out;
}

}  // namespace tandem
