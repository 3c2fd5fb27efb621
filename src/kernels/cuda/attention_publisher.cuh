// How a loading warp tells Hopper's computing warpgroups that its asynchronous copies have landed.
#pragma once

#include "kernels/cuda/attention_ptx.cuh"

namespace tandem::cuda {

// Publishes loads in the order they were issued, one load behind, so that a copy is in flight while the next is issued.
struct Publisher {
  uint32_t pending = 0;  // the barrier of loads not yet published
  int lane;
  __device__ __forceinline__ void publish() {
    fence_for_wgmma();
    __syncwarp();
    if (lane == 0) barrier_arrive(pending);
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

}  // namespace tandem::cuda
