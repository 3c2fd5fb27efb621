// Splits [0, n) over the process's threads. The split never changes a result: kernels give each output element to one
// thread and sum in an order that knows nothing of threads.
// Pieces are taken as threads come free, so that a thread the system holds back does not hold back the others.
#pragma once

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>

#include "kernels/worker_pool.h"

namespace tandem::kernels {

constexpr int64_t kPiecesPerThread = 4;

// fn(begin, end) on pieces of at least `grain` (but for the last). As many threads as OpenMP would use, which
// libtorch's own kernels do.
template <class Fn>
void parallel_for(int64_t n, int64_t grain, Fn fn) {
  if (n <= 0) return;
  const int64_t threads = omp_get_max_threads();
  if (threads == 1 || n <= grain) return fn(int64_t{0}, n);
  struct Shared {
    Fn& fn;
    int64_t n, pieces;
    std::atomic<int64_t> next{0};
    std::mutex failing;
    std::exception_ptr failure;
  } shared{.fn = fn, .n = n, .pieces = std::clamp<int64_t>(n / grain, 1, threads * kPiecesPerThread)};
  const auto take_pieces = [](void* context) {
    Shared& s = *static_cast<Shared*>(context);
    for (int64_t piece; (piece = s.next.fetch_add(1, std::memory_order_relaxed)) < s.pieces;) {
      try {
        s.fn(s.n * piece / s.pieces, s.n * (piece + 1) / s.pieces);
      } catch (...) {
        const std::lock_guard lock(s.failing);
        s.failure = std::current_exception();
      }
    }
  };
  run_on_threads(static_cast<int>(std::min(threads, shared.pieces)), take_pieces, &shared);
  if (shared.failure) std::rethrow_exception(shared.failure);
}

}  // namespace tandem::kernels
