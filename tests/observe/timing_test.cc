#include "observe/timing.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <thread>

#include "observe/host_info.h"

namespace tandem {
namespace {

void sleep_ms(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

TEST(PhaseTimer, NestedScopesAndRepeats) {
  PhaseTimer timer;
  {
    const auto step = timer.scope("step");
    {
      const auto gen = timer.scope("gen");
      sleep_ms(20);
    }
    {
      const auto gen = timer.scope("gen");
      sleep_ms(20);
    }
    sleep_ms(20);
  }
  EXPECT_GE(timer.seconds("gen"), 0.040);
  EXPECT_GE(timer.seconds("step"), timer.seconds("gen") + 0.020);
  EXPECT_EQ(timer.seconds("never"), 0);
  Metrics metrics;
  timer.report(metrics);
  EXPECT_EQ(metrics.begin()->name, "timing_s/step");
  EXPECT_EQ(metrics.get("timing_s/gen"), timer.seconds("gen"));
}

TEST(PhaseTimer, ItsOwnNameInsideAddsNothing) {
  PhaseTimer timer;
  const auto start = PhaseTimer::Clock::now();
  {
    const auto outer = timer.scope("a");
    const auto inner = timer.scope("a");
    sleep_ms(20);
  }
  const std::chrono::duration<double> passed = PhaseTimer::Clock::now() - start;
  EXPECT_GE(timer.seconds("a"), 0.020);
  EXPECT_LE(timer.seconds("a"), passed.count());
}

TEST(PhaseTimer, AnExceptionEndsTheScope) {
  PhaseTimer timer;
  try {
    const auto scope = timer.scope("gen");
    sleep_ms(5);
    throw std::runtime_error("x");
  } catch (const std::runtime_error&) {
  }
  const double ended = timer.seconds("gen");
  EXPECT_GE(ended, 0.005);
  sleep_ms(5);
  EXPECT_EQ(timer.seconds("gen"), ended);
}

TEST(PhaseTimer, ResetForgetsEndedPhasesAndRestartsOpenOnes) {
  PhaseTimer timer;
  { const auto gen = timer.scope("gen"); }
  const auto step = timer.scope("step");
  sleep_ms(20);
  const auto before = PhaseTimer::Clock::now();
  timer.reset();
  Metrics metrics;
  timer.report(metrics);
  const std::chrono::duration<double> passed = PhaseTimer::Clock::now() - before;
  EXPECT_FALSE(metrics.get("timing_s/gen").has_value());
  EXPECT_LE(*metrics.get("timing_s/step"), passed.count());
}

TEST(HostInfo, ParsesProc) {
  const auto memory = parse_process_memory("Name:\tx\nVmHWM:\t 2097152 kB\nVmRSS:\t 1572864 kB\nThreads:\t1\n");
  EXPECT_EQ(memory.peak_gb, 2.0);
  EXPECT_EQ(memory.resident_gb, 1.5);
  const auto host = parse_host_memory("MemTotal:       16777216 kB\nMemFree: 1 kB\nMemAvailable:    4194304 kB\n");
  EXPECT_EQ(host.total_gb, 16.0);
  EXPECT_EQ(host.available_gb, 4.0);
  EXPECT_EQ(parse_cpu_model("processor\t: 0\nmodel name\t: A CPU @ 2 GHz\nmodel name\t: other"), "A CPU @ 2 GHz");
  EXPECT_EQ(parse_cpu_model("processor : 0\n"), "unknown");
  EXPECT_EQ(parse_process_memory("").peak_gb, 0);
}

TEST(HostInfo, ThisProcess) {
  const std::string ballast(64 << 20, 'x');
  const auto memory = process_memory();
  EXPECT_GT(memory.resident_gb, ballast.size() / 1073741824.0);
  EXPECT_GE(memory.peak_gb, memory.resident_gb * 0.99);
  EXPECT_GT(host_memory().total_gb, memory.resident_gb);
  EXPECT_GE(cpu_info().cores, 1);
  EXPECT_FALSE(cpu_info().model.empty());
}

}  // namespace
}  // namespace tandem
