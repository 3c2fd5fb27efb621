// The backward on Hopper: two persistent kernels of one form. Warpgroup 2 loads; warpgroups 0 and 1 own 64 rows each of
// two resident tiles (keys and values, or queries and dout) and meet 64 rows at a time of the two other, streamed ones.
// The products' left sides that depend on the softmax (P, dS) never leave registers.
#include <algorithm>

#include "kernels/cuda/attention_backward.cuh"
#include "kernels/cuda/attention_publisher.cuh"
#include "kernels/cuda/attention_wgmma.cuh"

#pragma nv_diag_suppress 177  // passes for other chips leave the kernels empty, and what they call unused

namespace tandem::cuda {
namespace {

constexpr int kThreads = 384, kRows = 128;
constexpr int kResidentBlock = kRows * 128, kStepBlock = kStep * 128;  // blocks of 64 columns

// Shared memory of a thread block: what is small first, tiles at multiples of 1024 bytes. Keys and values stay for all
// their steps, so the next ones need a second buffer; queries and dout move to registers at once, which leaves more
// room for steps.
template <int D, bool kKeys>
struct Memory {
  static constexpr int kBuffers = kKeys ? 2 : 1, kStages = kKeys ? 3 : 5;
  static constexpr int kTileBytes = kRows * D * 2, kStepBytes = kStep * D * 2, kStatsBytes = 2 * kRows * 8;
  static constexpr int kBytes = 3072 + 2 * kBuffers * kTileBytes + 2 * kStages * kStepBytes;
  uint32_t stats, barriers, schedule, resident, stream;
  __device__ __forceinline__ explicit Memory(uint32_t base)
      : stats(base),
        barriers(stats + kStatsBytes),
        schedule(barriers + 128),
        resident(base + 3072),
        stream(resident + 2 * kBuffers * kTileBytes) {}
  __device__ __forceinline__ uint32_t tile(int buffer, int which) const {
    return resident + (2 * buffer + which) * kTileBytes;
  }
  __device__ __forceinline__ uint32_t step(int stage, int which) const {
    return stream + (2 * stage + which) * kStepBytes;
  }
  __device__ __forceinline__ uint32_t tile_full(int b) const { return barriers + b * 16; }
  __device__ __forceinline__ uint32_t tile_empty(int b) const { return barriers + 8 + b * 16; }
  __device__ __forceinline__ uint32_t step_full(int s) const { return barriers + 32 + s * 16; }
  __device__ __forceinline__ uint32_t step_empty(int s) const { return barriers + 40 + s * 16; }
  __device__ __forceinline__ uint32_t work(int b) const { return schedule + b * 32; }
  __device__ __forceinline__ uint32_t queue() const { return schedule + 96; }
  __device__ __forceinline__ uint32_t position(int s) const { return schedule + 64 + s * 4; }
  // Every lane of the eight warps that read arrives for itself: what it read is then before what comes in its place.
  __device__ __forceinline__ void init() const {
    for (int b = 0; b < kBuffers; ++b) barrier_init(tile_full(b), 128), barrier_init(tile_empty(b), 256);
    for (int s = 0; s < kStages; ++s) barrier_init(step_full(s), 128), barrier_init(step_empty(s), 256);
    barrier_init_done();
  }
};

// A resident pair of tiles and how many steps stream past it; no steps end the list.
struct Work {
  int row, count, pos, head, steps;
  __device__ __forceinline__ void write(uint32_t to) const {
    asm volatile("st.shared.v4.s32 [%0], {%1, %2, %3, %4};\nst.shared.s32 [%0+16], %5;" ::"r"(to), "r"(row), "r"(count),
                 "r"(pos), "r"(head), "r"(steps)
                 : "memory");
  }
  __device__ __forceinline__ void read(uint32_t from) {
    asm volatile("ld.shared.v4.s32 {%0, %1, %2, %3}, [%5];\nld.shared.s32 %4, [%5+16];"
                 : "=r"(row), "=r"(count), "=r"(pos), "=r"(head), "=r"(steps)
                 : "r"(from)
                 : "memory");
  }
};
__device__ __forceinline__ void write_int(uint32_t to, int value) {
  asm volatile("st.shared.s32 [%0], %1;" ::"r"(to), "r"(value) : "memory");
}
__device__ __forceinline__ int read_int(uint32_t from) {
  int value;
  asm volatile("ld.shared.s32 %0, [%1];" : "=r"(value) : "r"(from) : "memory");
  return value;
}
__device__ __forceinline__ void copy_stats(uint32_t to, const float2* from, bool keep) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(to), "l"(from), "r"(keep ? 8 : 0) : "memory");
}

template <class M>
__device__ __forceinline__ void end_list(const M& memory, Publisher& publisher, int number) {
  const int b = number % M::kBuffers;
  publisher.wait_slot(memory.tile_empty(b), number / M::kBuffers & 1 ^ 1);
  if ((threadIdx.x & 127) == 0) Work{0, 0, 0, 0, 0}.write(memory.work(b));
  publisher.flush();
  barrier_arrive(memory.tile_full(b));
}

template <int D>
__device__ __forceinline__ void load_for_keys(const BackwardArgs& a, const Memory<D, true>& memory) {
  constexpr int kBuffers = Memory<D, true>::kBuffers, kStages = Memory<D, true>::kStages;
  const int index_in_group = threadIdx.x & 127;
  const TileThread<D> thread(index_in_group);
  Publisher publisher;
  const int kv_heads = a.p.shape.kv_heads, group = a.group();
  WorkQueue queue{a.counters, memory.queue(), index_in_group};
  int n = 0, number = 0;
  for (int index = blockIdx.x; index < a.p.num_key_tiles * kv_heads; index = queue.take(), ++number) {
    queue.ask();
    const KeyTile tile = a.p.key_tiles[index / kv_heads];
    const int kv_head = index % kv_heads, b = number % kBuffers;
    int steps = 0;
    for (int r = 0; r < tile.num_runs; ++r)
      steps += (__ldg(&a.p.key_runs[tile.first_run + r].count) + kStep - 1) / kStep;
    publisher.wait_slot(memory.tile_empty(b), ((number / kBuffers) & 1) ^ 1);
    if (index_in_group == 0) Work{tile.row, tile.count, tile.pos, kv_head, steps * group}.write(memory.work(b));
    const int64_t at = tile.row * a.p.kv_stride + kv_head * D;
    load_tile<D, kRows>(thread, a.p.k_TKD + at, a.p.kv_stride, tile.count, memory.tile(b, 0));
    load_tile<D, kRows>(thread, a.p.v_TKD + at, a.p.kv_stride, tile.count, memory.tile(b, 1));
    publisher.loaded(memory.tile_full(b));
    for (int head = kv_head * group; head < (kv_head + 1) * group; ++head)
      for (int r = 0; r < tile.num_runs; ++r) {
        const QueryTile run = a.p.key_runs[tile.first_run + r];
        for (int i = 0; i < run.count; i += kStep, ++n) {
          const int s = n % kStages, row = run.row + i, queries = min(kStep, run.count - i);
          publisher.wait_slot(memory.step_empty(s), ((n / kStages) & 1) ^ 1);
          if (index_in_group == 0) write_int(memory.position(s), run.pos + i);
          load_tile<D, kStep>(thread, a.p.q_THD + row * a.p.q_stride + head * D, a.p.q_stride, queries,
                              memory.step(s, 0));
          load_tile<D, kStep>(thread, a.p.dout_THD + row * a.dout_stride() + head * D, a.dout_stride(), queries,
                              memory.step(s, 1));
          if (index_in_group < kStep) {
            const bool keep = index_in_group < queries;
            copy_stats(memory.stats + (s * kStep + index_in_group) * 8,
                       a.stats_HT + static_cast<int64_t>(head) * a.p.rows + row + (keep ? index_in_group : 0), keep);
          }
          publisher.loaded(memory.step_full(s));
        }
      }
  }
  end_list(memory, publisher, number);
}

// s (64 × 64) = a (64 rows of a resident tile) · b (a step)ᵀ
template <int D>
__device__ __forceinline__ void issue_abt(float (&s)[32], uint32_t a, uint32_t b) {
  const uint64_t da = wgmma_descriptor(a), db = wgmma_descriptor(b);
#pragma unroll
  for (int k = 0; k < D / 16; ++k)
    wgmma_abt(s, da + (k >> 2) * (kResidentBlock >> 4) + (k & 3) * 2, db + (k >> 2) * (kStepBlock >> 4) + (k & 3) * 2,
              k > 0);
  wgmma_commit();
}
// The same with a in registers, which leaves shared memory's bandwidth to b.
template <int D>
__device__ __forceinline__ void issue_abt(float (&s)[32], const uint32_t (&a)[D / 4], uint32_t b) {
  const uint64_t db = wgmma_descriptor(b);
#pragma unroll
  for (int k = 0; k < D / 16; ++k) wgmma_abt(s, a + 4 * k, db + (k >> 2) * (kStepBlock >> 4) + (k & 3) * 2, k > 0);
  wgmma_commit();
}
// A warp's 16 rows of a resident tile as left sides of products.
template <int D>
__device__ __forceinline__ void load_rows(uint32_t tile, int first_row, uint32_t (&a)[D / 4]) {
  const int r = threadIdx.x & 7, q = threadIdx.x >> 3 & 3;
#pragma unroll
  for (int k = 0; k < D / 16; ++k) {
    uint32_t fragment[4];
    load_matrices(fragment, tile + (k >> 2) * kResidentBlock + (first_row + r + (q & 1) * 8) * 128 +
                                (((2 * (k & 3) + (q >> 1)) ^ r) << 4));
#pragma unroll
    for (int j = 0; j < 4; ++j) a[4 * k + j] = fragment[j];
  }
}
// o (64 × D) = or += a (64 × 64, registers) · b (a step)
template <int D>
__device__ __forceinline__ void issue_ab(float (&o)[D / 2], const uint32_t (&a)[16], uint32_t b, bool accumulate) {
  const uint64_t db = wgmma_descriptor(b, kStepBlock);
  wgmma_fence();
#pragma unroll
  for (int k = 0; k < 4; ++k) wgmma_ab(o, a + 4 * k, db + k * (2048 >> 4), k > 0 || accumulate);
  wgmma_commit();
}

template <int D>
__device__ __forceinline__ void sum_for_keys(const BackwardArgs& a, const Memory<D, true>& memory, const float2* stats,
                                             int warpgroup) {
  constexpr int kBuffers = Memory<D, true>::kBuffers, kStages = Memory<D, true>::kStages;
  const int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
  const int row = warpgroup * 64 + (threadIdx.x >> 5 & 3) * 16 + g;
  const float scale_log2 = a.p.shape.scale * kLog2e;
  float dk[D / 2], dv[D / 2];
  int n = 0;
  for (int number = 0;; ++number) {
    const int b = number % kBuffers;
    Work work;
    barrier_wait(memory.tile_full(b), (number / kBuffers) & 1);
    work.read(memory.work(b));
    if (work.steps == 0) break;
    const uint32_t keys = memory.tile(b, 0) + warpgroup * 8192, values = memory.tile(b, 1) + warpgroup * 8192;
    bool started = false;
    for (int i = 0; i < work.steps; ++i, ++n) {
      const int s = n % kStages;
      float sc[32], dp[32];
      uint32_t weights[16], gradients[16];
      barrier_wait(memory.step_full(s), (n / kStages) & 1);
      const int position = read_int(memory.position(s)), distance = position - (work.pos + row);
      turn_wait(1 + warpgroup);
      if (position + kStep <= work.pos + warpgroup * 64) {  // none of these queries sees these keys
        turn_pass(2 - warpgroup);
        barrier_arrive(memory.step_empty(s));
        continue;
      }
      wgmma_fence();
      issue_abt<D>(sc, keys, memory.step(s, 0));
      issue_abt<D>(dp, values, memory.step(s, 1));
      turn_pass(2 - warpgroup);
      wgmma_wait<1>();
      wgmma_pin(sc);
      weights_by_column(sc, stats + s * kStep, scale_log2, distance, t);
      pack_fragments(sc, weights);
      issue_ab<D>(dv, weights, memory.step(s, 1), started);
      wgmma_wait<1>();
      wgmma_pin(dp);
      gradient_by_column(weights, dp, stats + s * kStep, t);
      pack_fragments(dp, gradients);
      issue_ab<D>(dk, gradients, memory.step(s, 0), started);
      started = true;
      wgmma_wait<0>();
      wgmma_pin(dk);
      wgmma_pin(dv);
      __syncwarp();
      barrier_arrive(memory.step_empty(s));
    }
    barrier_arrive(memory.tile_empty(b));
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int r = row + 8 * half;
      const int64_t to = (work.row + r) * a.p.dkv_stride + work.head * D;
      store_row<D>(dk, half, a.p.shape.scale, a.p.dk_TKD + to, t, r < work.count);
      store_row<D>(dv, half, 1.0f, a.p.dv_TKD + to, t, r < work.count);
    }
  }
}

template <int D, bool kPair>
__device__ __forceinline__ void load_for_queries(const BackwardArgs& a, const Memory<D, false>& memory) {
  constexpr int kBuffers = Memory<D, false>::kBuffers, kStages = Memory<D, false>::kStages;
  const int index_in_group = threadIdx.x & 127;
  const TileThread<D> thread(index_in_group);
  Publisher publisher;
  const int units = kPair ? a.p.shape.heads / 2 : a.p.shape.heads;
  WorkQueue queue{a.counters + 1, memory.queue(), index_in_group};
  int n = 0, number = 0;
  for (int index = blockIdx.x; index < a.p.num_query_tiles * units; index = queue.take(), ++number) {
    queue.ask();
    const QueryTile tile = a.p.query_tiles[index / units];
    const PackedSequence sequence = a.p.sequences[tile.kv];
    const int head = index % units * (kPair ? 2 : 1), b = number % kBuffers;
    const int end = tile.pos + tile.count, steps = (end + kStep - 1) / kStep;
    publisher.wait_slot(memory.tile_empty(b), ((number / kBuffers) & 1) ^ 1);
    if (index_in_group == 0) Work{tile.row, tile.count, tile.pos, head, steps}.write(memory.work(b));
#pragma unroll 1
    for (int which = 0; which < 2; ++which) {
      const int64_t stride = which == 0 ? a.p.q_stride : a.dout_stride();
      const bf16* source = (which == 0 ? a.p.q_THD : a.p.dout_THD) + tile.row * stride + head * D;
      uint32_t target = memory.tile(b, which) + thread.offset(kResidentBlock);
#pragma unroll 2
      for (int i = 0; i < kRows / TileThread<D>::kRowsPerPass; ++i) {
        const int at = i * TileThread<D>::kRowsPerPass + thread.row, r = kPair ? at & 63 : at;
        const bool keep = r < tile.count;
        copy_async_or_zero(target + i * TileThread<D>::kPassBytes,
                           source + (keep ? r : 0) * stride + (kPair ? at >> 6 : 0) * D + thread.piece * 8, keep);
      }
    }
    const int r = kPair ? index_in_group & 63 : index_in_group, side = kPair ? index_in_group >> 6 : 0;
    const bool keep = r < tile.count;
    copy_stats(memory.stats + (b * kRows + index_in_group) * 8,
               a.stats_HT + static_cast<int64_t>(head + side) * a.p.rows + tile.row + (keep ? r : 0), keep);
    publisher.loaded(memory.tile_full(b));
    const int64_t column = static_cast<int64_t>(head / a.group()) * D;
    for (int i = 0; i < steps; ++i, ++n) {
      const int s = n % kStages;
      publisher.wait_slot(memory.step_empty(s), ((n / kStages) & 1) ^ 1);
      load_keys(thread, a.p.k_TKD + column, a.p.kv_stride, sequence, i, end, memory.step(s, 0));
      load_keys(thread, a.p.v_TKD + column, a.p.kv_stride, sequence, i, end, memory.step(s, 1));
      publisher.loaded(memory.step_full(s));
    }
  }
  end_list(memory, publisher, number);
}

template <int D, bool kPair>
__device__ __forceinline__ void sum_for_queries(const BackwardArgs& a, const Memory<D, false>& memory,
                                                const float2* stats, int warpgroup) {
  constexpr int kBuffers = Memory<D, false>::kBuffers, kStages = Memory<D, false>::kStages;
  const int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
  const int row_in_group = (threadIdx.x >> 5 & 3) * 16 + g, row = kPair ? row_in_group : warpgroup * 64 + row_in_group;
  const float scale_log2 = a.p.shape.scale * kLog2e;
  float dq[D / 2];
  int n = 0;
  for (int number = 0;; ++number) {
    const int b = number % kBuffers;
    Work work;
    barrier_wait(memory.tile_full(b), (number / kBuffers) & 1);
    work.read(memory.work(b));
    if (work.steps == 0) break;
    const int first_row = warpgroup * 64 + (threadIdx.x >> 5 & 3) * 16;
    uint32_t queries[D / 4], douts[D / 4];
    load_rows<D>(memory.tile(b, 0), first_row, queries);
    load_rows<D>(memory.tile(b, 1), first_row, douts);
    const float2 row_stats[2] = {stats[b * kRows + first_row + g], stats[b * kRows + first_row + g + 8]};
    __syncwarp();
    barrier_arrive(memory.tile_empty(b));
    for (int i = 0; i < work.steps; ++i, ++n) {
      const int s = n % kStages;
      float sc[32], dp[32];
      uint32_t gradients[16];
      barrier_wait(memory.step_full(s), (n / kStages) & 1);
      turn_wait(1 + warpgroup);
      wgmma_fence();
      issue_abt<D>(sc, queries, memory.step(s, 0));
      issue_abt<D>(dp, douts, memory.step(s, 1));
      turn_pass(2 - warpgroup);
      wgmma_wait<0>();
      wgmma_pin(sc);
      wgmma_pin(dp);
      weights_by_row(sc, row_stats, scale_log2, work.pos + row - i * kStep, t);
      gradient_by_row(sc, dp, row_stats);
      pack_fragments(dp, gradients);
      issue_ab<D>(dq, gradients, memory.step(s, 0), i > 0);
      wgmma_wait<0>();
      wgmma_pin(dq);
      barrier_arrive(memory.step_empty(s));
    }
    const int head = work.head + (kPair ? warpgroup : 0);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int r = row + 8 * half;
      store_row<D>(dq, half, a.p.shape.scale, a.p.dq_THD + (work.row + r) * a.p.dq_stride + head * D, t,
                   r < work.count);
    }
  }
}

enum class Pass { kKeys, kQueries, kQueryPairs };

template <int D, Pass kPass>
__global__ void __launch_bounds__(kThreads, 1) backward_kernel(const __grid_constant__ BackwardArgs a) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) uint8_t raw[];
  const Memory<D, kPass == Pass::kKeys> memory(shared_address(raw));
  const auto* stats = reinterpret_cast<const float2*>(raw);
  if (threadIdx.x == 0) {
    if (shared_address(raw) % 1024 != 0) __trap();
    memory.init();
  }
  __syncthreads();
  const int warpgroup = __shfl_sync(~0u, threadIdx.x >> 7, 0);
  if (warpgroup == 2) {
    drop_registers<40>();
    if constexpr (kPass == Pass::kKeys)
      load_for_keys<D>(a, memory);
    else
      load_for_queries<D, kPass == Pass::kQueryPairs>(a, memory);
  } else {
    raise_registers<232>();
    // The warpgroups take turns at issuing products, so that one's arithmetic meets the other's products.
    if (warpgroup == 0) turn_pass(1);
    if constexpr (kPass == Pass::kKeys)
      sum_for_keys<D>(a, memory, stats, warpgroup);
    else
      sum_for_queries<D, kPass == Pass::kQueryPairs>(a, memory, stats, warpgroup);
    if (warpgroup == 0) turn_wait(1);  // absorbs the last pass
  }
#else
  __trap();
#endif
}

template <int D, Pass kPass>
cudaError_t launch(const BackwardArgs& args, int work, const AttentionDevice& device, cudaStream_t stream) {
  const auto kernel = backward_kernel<D, kPass>;
  constexpr int kBytes = Memory<D, kPass == Pass::kKeys>::kBytes;
  const auto error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (error != cudaSuccess) return error;
  kernel<<<std::min(work, device.multiprocessors), kThreads, kBytes, stream>>>(args);
  return cudaGetLastError();
}

template <int D>
cudaError_t launch(const BackwardArgs& args, const AttentionDevice& device, cudaStream_t stream) {
  const int heads = args.p.shape.heads, kv_heads = args.p.shape.kv_heads, tiles = args.p.num_query_tiles;
  const auto error = launch<D, Pass::kKeys>(args, args.p.num_key_tiles * kv_heads, device, stream);
  if (error != cudaSuccess) return error;
  return query_tile_rows(heads / kv_heads) == 64
             ? launch<D, Pass::kQueryPairs>(args, tiles * (heads / 2), device, stream)
             : launch<D, Pass::kQueries>(args, tiles * heads, device, stream);
}

}  // namespace

cudaError_t backward_wgmma(const BackwardArgs& args, const AttentionDevice& device, cudaStream_t stream) {
  return args.p.shape.head_dim == 128 ? launch<128>(args, device, stream) : launch<64>(args, device, stream);
}

}  // namespace tandem::cuda
