// Hopper's loading warpgroup: how it tells the computing ones that its copies have landed, and how it gets its work.
#pragma once

#include "kernels/cuda/attention_ptx.cuh"

namespace tandem::cuda {

// Publishes loads in the order they were issued, one load behind, so that a copy is in flight while the next is issued.
struct Publisher {
  uint32_t pending = 0;  // the barrier of loads not yet published; all 128 threads arrive on it
  __device__ __forceinline__ void publish() {
    fence_for_wgmma();
    barrier_arrive(pending);
    pending = 0;
  }
  __device__ __forceinline__ void loaded(uint32_t barrier) {
    commit_copies();
    if (pending) wait_copies<1>(), publish();
    pending = barrier;
  }
  __device__ __forceinline__ void flush() {
    wait_copies<0>();
    if (pending) publish();
  }
  __device__ __forceinline__ void wait_slot(uint32_t barrier, int parity) {  // nothing to load into: publish all first
    if (__all_sync(~0u, barrier_test(barrier, parity))) return;
    if (pending) flush();
    barrier_wait(barrier, parity);
  }
};

// Hands persistent blocks their next piece of work, first come first served: which block computes a piece changes
// nothing in it. `counter` starts at 0 in global memory, `slots` are 8 bytes of shared memory; 128 threads take part.
struct WorkQueue {
  int* counter;
  uint32_t slots;
  int thread, taken = 0, next = 0;
  __device__ __forceinline__ void ask() {  // well before take(): the answer takes a while
    if (thread == 0) next = static_cast<int>(gridDim.x) + atomicAdd(counter, 1);
  }
  __device__ __forceinline__ int take() {
    const uint32_t slot = slots + (taken++ & 1) * 4;
    if (thread == 0) asm volatile("st.shared.s32 [%0], %1;" ::"r"(slot), "r"(next) : "memory");
    asm volatile("bar.sync 3, 128;" ::: "memory");
    int index;
    asm volatile("ld.shared.s32 %0, [%1];" : "=r"(index) : "r"(slot) : "memory");
    return index;
  }
};

}  // namespace tandem::cuda
