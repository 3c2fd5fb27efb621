#include "observe/gpu_kernels.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>

namespace tandem {
namespace {

// A library that hands over one buffer with a kernel, and one record of another kind, when it is flushed.
CuptiCalls::RequestBuffer request;
CuptiCalls::TakeBuffer take;
constexpr size_t kRecord = 112;
constexpr uint64_t kNow = 5'000'000;

template <class T>
void put(uint8_t* record, size_t at, T value) {
  std::memcpy(record + at, &value, sizeof value);
}

CuptiCalls fake() {
  CuptiCalls calls;
  calls.register_callbacks = [](CuptiCalls::RequestBuffer a, CuptiCalls::TakeBuffer b) {
    return request = a, take = b, 0;
  };
  calls.enable = calls.disable = [](int kind) { return kind == 10 ? 0 : 1; };
  calls.timestamp = [](uint64_t* ns) { return *ns = kNow, 0; };
  calls.flush = [](uint32_t) {
    uint8_t* buffer = nullptr;
    size_t size = 0, most = 9;
    request(&buffer, &size, &most);
    EXPECT_TRUE(size >= 2 * kRecord && most == 0);
    std::memset(buffer, 0, 2 * kRecord);
    put(buffer, 0, 1);  // a copy
    uint8_t* kernel = buffer + kRecord;
    put(kernel, 0, 10);
    put(kernel, 16, kNow - 3000), put(kernel, 24, kNow - 1000), put(kernel, 48, 7);
    put(kernel, 104, "_ZN6tandem4cuda12_GLOBAL__N_14gemmIfEEvPT_");
    take(nullptr, 0, buffer, size, 2 * kRecord);
    return 0;
  };
  calls.next_record = [](uint8_t* buffer, size_t valid, uint8_t** record) {
    uint8_t* next = *record == nullptr ? buffer : *record + kRecord;
    if (next >= buffer + valid) return 1;
    return *record = next, 0;
  };
  return calls;
}

TEST(GpuKernels, BecomeSpansOnTheTracesClock) {
  const auto start = TraceRecorder::Clock::now() - std::chrono::seconds(1);
  TraceRecorder recorder(1, start);
  GpuKernelTrace trace(fake());
  EXPECT_EQ(trace.stop(recorder), 0U) << "it was never begun";
  EXPECT_EQ(recorder.events().find("kernels"), std::string::npos);
  trace.start();
  EXPECT_EQ(trace.stop(recorder), 0U);
  const std::string events = recorder.events();
  EXPECT_NE(events.find(R"("name":"tandem::cuda::gemm","cat":"kernels","ts":1)"), std::string::npos) << events;
  EXPECT_NE(events.find(R"("dur":2,)"), std::string::npos) << "microseconds: " << events;
  EXPECT_NE(events.find(R"("args":{"stream":7)"), std::string::npos) << events;
}

TEST(GpuKernels, WithoutTheLibraryThereAreNone) {
  EXPECT_FALSE(load_cupti("libabsent.so.1"));
  EXPECT_FALSE(load_cupti("libm.so.6"));
  TraceRecorder recorder(1);
  GpuKernelTrace trace(std::nullopt);
  trace.start();
  EXPECT_EQ(trace.stop(recorder), 0U);
}

}  // namespace
}  // namespace tandem
