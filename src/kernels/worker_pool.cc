#include "kernels/worker_pool.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace tandem::kernels {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr auto kSpin = 200us;  // longer than what lies between two kernels of a pass
constexpr auto kHeldBack =
    50us;  // a burst of pauses takes a microsecond or two, unless the thread was taken off its core
constexpr auto kNoSpinning = 100ms;
constexpr int kBurst = 32;

void pause() {
#if defined(__x86_64__)
  _mm_pause();
#else
  std::this_thread::yield();
#endif
}

class Waiter {
 public:
  // Until value is no longer `old`; returns what it became.
  template <class T>
  T wait_for_change(const std::atomic<T>& value, T old) {
    T now = value.load(std::memory_order_acquire);
    const auto start = Clock::now();
    if (start >= spin_again_) {
      for (auto before = start; now == old && before - start < kSpin;) {
        for (int i = 0; i < kBurst && now == old; ++i) {
          pause();
          now = value.load(std::memory_order_acquire);
        }
        const auto after = Clock::now();
        if (after - before > kHeldBack) {
          spin_again_ = after + kNoSpinning;
          break;
        }
        before = after;
      }
    }
    while (now == old) {
      value.wait(old, std::memory_order_acquire);
      now = value.load(std::memory_order_acquire);
    }
    return now;
  }

 private:
  Clock::time_point spin_again_{};
};

thread_local bool inside = false;

class Pool {
 public:
  ~Pool() {
    stopping_.store(true, std::memory_order_relaxed);
    call_.fetch_add(1, std::memory_order_release);
    call_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  bool run(int threads, Work work, void* context) {
    if (!in_use_.try_lock()) return false;
    const std::lock_guard lock(in_use_, std::adopt_lock);
    while (static_cast<int>(threads_.size()) < threads - 1)
      threads_.emplace_back([this, index = static_cast<int>(threads_.size())] { serve(index); });
    work_ = work, context_ = context, wanted_ = threads - 1;
    members_.store(kOpen, std::memory_order_release);
    call_.fetch_add(1, std::memory_order_release);
    call_.notify_all();
    inside = true;
    work(context);
    inside = false;
    // Whoever has not come by now has nothing left to do here, and is not waited for.
    uint32_t at_work = members_.fetch_and(~kOpen, std::memory_order_acq_rel) & ~kOpen;
    static thread_local Waiter waiter;
    while (at_work > 0) at_work = waiter.wait_for_change(members_, at_work);
    return true;
  }

 private:
  static constexpr uint32_t kOpen = 1u << 31;

  // False when the call is over. What a call is made of may be read only between join and leave.
  bool join() {
    uint32_t members = members_.load(std::memory_order_acquire);
    while ((members & kOpen) != 0)
      if (members_.compare_exchange_weak(members, members + 1, std::memory_order_acq_rel)) return true;
    return false;
  }
  void leave() {
    if (members_.fetch_sub(1, std::memory_order_acq_rel) == 1) members_.notify_one();
  }

  void serve(int index) {
    inside = true;
    Waiter waiter;
    uint32_t seen = 0;
    for (;;) {
      seen = waiter.wait_for_change(call_, seen);
      if (stopping_.load(std::memory_order_relaxed)) return;
      if (!join()) continue;
      if (index < wanted_) work_(context_);
      leave();
    }
  }

  std::mutex in_use_;
  std::vector<std::thread> threads_;
  Work work_ = nullptr;
  void* context_ = nullptr;
  int wanted_ = 0;
  std::atomic<uint32_t> call_{0};     // grows with each
  std::atomic<uint32_t> members_{0};  // threads at work on this call, and whether more may join
  std::atomic<bool> stopping_{false};
};

}  // namespace

void run_on_threads(int threads, Work work, void* context) {
  static Pool pool;
  if (threads < 2 || inside || !pool.run(threads, work, context)) work(context);
}

}  // namespace tandem::kernels
