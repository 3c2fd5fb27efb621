// Work on the rows of a table: by many threads, and on some of them.
#pragma once

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "base/rng.h"

namespace tandem {

// Calls work(i) for all i < count from several threads (0: one a core, at most 8); the error of the smallest i wins, so
// that it is always the same.
template <class Work>
void parallel_rows(size_t count, size_t num_threads, const Work& work) {
  const size_t cores = std::clamp<size_t>(std::thread::hardware_concurrency(), 1, 8);
  std::atomic<size_t> next = 0;
  std::mutex mutex;
  size_t failed_at = count;
  std::exception_ptr failure;
  const auto loop = [&] {
    for (size_t i; (i = next.fetch_add(1)) < count;) {
      try {
        work(i);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (i < failed_at) failed_at = i, failure = std::current_exception();
        next = count;
      }
    }
  };
  {
    std::vector<std::jthread> threads;
    for (size_t t = 1; t < std::min(num_threads ? num_threads : cores, count); ++t) threads.emplace_back(loop);
    loop();
  }
  if (failure) std::rethrow_exception(failure);
}

// Keeps `count` rows drawn by `seed`, in their order (selection sampling, Knuth's algorithm S).
template <class Row>
void choose_rows(std::vector<Row>* rows, size_t count, uint64_t seed) {
  Philox random(seed);
  size_t kept = 0;
  for (size_t i = 0; i < rows->size() && kept < count; ++i)
    if (random.below(rows->size() - i) < count - kept) std::swap((*rows)[kept++], (*rows)[i]);
  rows->resize(std::min(count, rows->size()));
}

}  // namespace tandem
