// Splits [0, n) over the process's threads (OpenMP, shared with libtorch). The split never changes a result:
// kernels give each output element to one thread and sum in an order that knows nothing of threads.
// Pieces are taken as threads come free, so that a thread the system holds back does not hold back the others.
#pragma once

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>

namespace tandem::kernels {

constexpr int64_t kPiecesPerThread = 4;

// fn(begin, end) on pieces of at least `grain` (but for the last).
template <class Fn>
void parallel_for(int64_t n, int64_t grain, Fn fn) {
  if (n <= 0) return;
  const int64_t threads = omp_get_max_threads();
  if (threads == 1 || n <= grain || omp_in_parallel()) return fn(int64_t{0}, n);
  const int64_t pieces = std::clamp<int64_t>(n / grain, 1, threads * kPiecesPerThread);
  std::atomic<int64_t> next{0};
  std::exception_ptr failure;
#pragma omp parallel num_threads(static_cast <int>(std::min(threads, pieces)))
  for (int64_t piece; (piece = next.fetch_add(1, std::memory_order_relaxed)) < pieces;) {
    try {
      fn(n * piece / pieces, n * (piece + 1) / pieces);
    } catch (...) {
#pragma omp critical
      failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace tandem::kernels
