// Splits [0, n) over the process's threads (OpenMP, shared with libtorch). The split never changes a result:
// kernels give each output element to one thread and sum in an order that knows nothing of threads.
#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>
#include <exception>

namespace tandem::kernels {

template <class Fn>
void parallel_for(int64_t n, int64_t grain, Fn fn) {
  if (n <= 0) return;
  const int64_t wanted = std::min<int64_t>(omp_get_max_threads(), (n + grain - 1) / grain);
  if (wanted <= 1 || omp_in_parallel()) return fn(int64_t{0}, n);
  std::exception_ptr failure;
#pragma omp parallel num_threads(static_cast <int>(wanted))
  {
    const int64_t threads = omp_get_num_threads();
    const int64_t rank = omp_get_thread_num();
    const int64_t begin = n * rank / threads, end = n * (rank + 1) / threads;
    try {
      if (begin < end) fn(begin, end);
    } catch (...) {
#pragma omp critical
      failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace tandem::kernels
