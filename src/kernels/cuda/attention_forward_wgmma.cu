// Prefill and training forward on Hopper. Persistent blocks: warpgroup 2 loads (asynchronous copies from any rows),
// warpgroups 0 and 1 own 64 query rows each: two heads of a KV group at the same positions, or 128 of one head.
#include <algorithm>

#include "kernels/cuda/attention_forward.cuh"
#include "kernels/cuda/attention_numerics.cuh"
#include "kernels/cuda/attention_publisher.cuh"
#include "kernels/cuda/attention_wgmma.cuh"

#pragma nv_diag_suppress 177  // passes for other chips leave the kernels empty, and what they call unused

namespace tandem::cuda {
namespace {

constexpr int kStages = 2, kBlockBytes = 128 * 128;  // 128 rows of 64 columns
constexpr int kThreads = 384;

template <int D>
struct Memory {  // shared memory of a thread block
  static constexpr int kTileBytes = 128 * D * 2;
  static constexpr int kBytes = 1024 + kTileBytes * (2 + 2 * kStages) + 256;
  uint32_t q, k, v, barriers, schedule;
  __device__ __forceinline__ explicit Memory(uint32_t raw)
      : q((raw + 1023) & ~1023u),
        k(q + 2 * kTileBytes),
        v(k + kStages * kTileBytes),
        barriers(v + kStages * kTileBytes),
        schedule(barriers + 128) {}
  __device__ __forceinline__ uint32_t q_full(int s) const { return barriers + s * 16; }
  __device__ __forceinline__ uint32_t q_empty(int s) const { return barriers + 8 + s * 16; }
  __device__ __forceinline__ uint32_t k_full(int s) const { return barriers + 32 + s * 32; }
  __device__ __forceinline__ uint32_t k_empty(int s) const { return barriers + 40 + s * 32; }
  __device__ __forceinline__ uint32_t v_full(int s) const { return barriers + 48 + s * 32; }
  __device__ __forceinline__ uint32_t v_empty(int s) const { return barriers + 56 + s * 32; }
  __device__ __forceinline__ void init() const {
    for (int s = 0; s < 2; ++s) barrier_init(q_full(s), 128), barrier_init(q_empty(s), 8);
    for (int s = 0; s < kStages; ++s) {
      barrier_init(k_full(s), 128), barrier_init(k_empty(s), 8);
      barrier_init(v_full(s), 128), barrier_init(v_empty(s), 8);
    }
    barrier_init_done();
  }
};

// A unit of work is (tile, head or pair of heads); count 0 ends the list.
struct Work {
  int row, count, pos, unit;
  __device__ __forceinline__ bool done() const { return count == 0; }
  __device__ __forceinline__ int end() const { return pos + count; }
  __device__ __forceinline__ int chunks() const { return (end() + kChunk - 1) / kChunk; }
};

template <int D, bool kPaged, bool kPair>
__device__ __forceinline__ void load_tiles(const ForwardArgs& p, const Memory<D>& memory) {
  using Thread = TileThread<D>;
  constexpr int kTileBytes = Memory<D>::kTileBytes;
  const int index_in_group = threadIdx.x & 127;
  const Thread thread(index_in_group);
  const uint32_t put = thread.offset(kBlockBytes);
  Publisher publisher;
  const int units = kPair ? p.shape.heads / 2 : p.shape.heads;
  auto fetch_tile = [&](int i) { return i < p.num_tiles * units ? p.tiles[i / units] : QueryTile{0, 0, 0, 0}; };
  int n = 0, index = blockIdx.x;
  QueryTile next_tile = fetch_tile(index);
  PackedSequence next_sequence = fetch_sequence<kPaged>(p, next_tile);
  for (int number = 0;; ++number, index += gridDim.x) {
    const QueryTile tile = next_tile;
    const PackedSequence sequence = next_sequence;
    const Work work{tile.row, tile.count, tile.pos, index % units};
    const int qs = number & 1, head = kPair ? work.unit * 2 : work.unit;
    int page = fetch_page<kPaged>(p, tile, 0);
    next_tile = fetch_tile(index + gridDim.x);
    publisher.wait_slot(memory.q_empty(qs), ((number >> 1) & 1) ^ 1);
    if (index_in_group == 0)  // the compute warps read it once q_full says so
      asm volatile("st.shared.v4.s32 [%0], {%1, %2, %3, %4};" ::"r"(memory.schedule + qs * 16), "r"(work.row),
                   "r"(work.count), "r"(work.pos), "r"(work.unit)
                   : "memory");
    if (work.done()) {
      publisher.flush();
      barrier_arrive(memory.q_full(qs));
      return;
    }
    next_sequence = fetch_sequence<kPaged>(p, next_tile);
    const KeyLoader<D, kPaged> loader{p, head / (p.shape.heads / p.shape.kv_heads), thread, sequence};
    constexpr int kPasses = 128 / Thread::kRowsPerPass;
#pragma unroll 2
    for (int i = 0; i < kPasses; ++i) {
      const int side = kPair ? i / (kPasses / 2) : 0;
      const int r = (kPair ? i % (kPasses / 2) : i) * Thread::kRowsPerPass + thread.row;
      const bool keep = r < tile.count;
      const bf16* source = p.q + (tile.row + (keep ? r : 0)) * p.q_stride + (head + side) * D + thread.piece * 8;
      copy_async_or_zero(memory.q + qs * kTileBytes + put + i * Thread::kPassBytes, source, keep);
    }
    publisher.loaded(memory.q_full(qs));
    const int chunks = work.chunks();
    for (int c = 0; c < chunks; ++c, ++n) {
      const int s = n % kStages, phase = (n / kStages) & 1;
      const int next_page = c + 1 < chunks ? fetch_page<kPaged>(p, tile, c + 1) : 0;
      publisher.wait_slot(memory.k_empty(s), phase ^ 1);
      loader.load(false, c, work.end(), page, memory.k + s * kTileBytes + put);
      publisher.loaded(memory.k_full(s));
      publisher.wait_slot(memory.v_empty(s), phase ^ 1);
      loader.load(true, c, work.end(), page, memory.v + s * kTileBytes + put);
      publisher.loaded(memory.v_full(s));
      page = next_page;
    }
  }
}

// Software pipeline over (work, chunk) steps, also across works: while a step's weights meet its values (in halves of
// 64 dims), the next step's scores are computed. One straight body: ptxas serialises wgmma at a branch too many.
template <int D, bool kPair>
__device__ __forceinline__ void attend(const ForwardArgs& p, const Memory<D>& memory, int warpgroup) {
  constexpr int kTileBytes = Memory<D>::kTileBytes, kHalves = D / 64;
  const int thread = threadIdx.x & 127, lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
  const int group_row = kPair ? 0 : warpgroup * 64, r0 = group_row + (thread >> 5) * 16 + g;
  const float scale_log2 = p.shape.scale * kLog2e;
  float max[2] = {-INFINITY, -INFINITY}, sum[2] = {0.0f, 0.0f}, o[D / 2], scores[64], chunk_max[2], chunk_sum[2];
  uint32_t weights[32];
#pragma unroll
  for (int j = 0; j < D / 2; ++j) o[j] = 0.0f;
  int c = 0, n = 0, number = 0;  // the step whose scores are in flight or at hand: chunk, serial, serial of its work
  Work work;
  auto next_work = [&] {
    barrier_wait(memory.q_full(number & 1), (number >> 1) & 1);
    asm volatile("ld.shared.v4.s32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(work.row), "=r"(work.count), "=r"(work.pos), "=r"(work.unit)
                 : "r"(memory.schedule + (number & 1) * 16)
                 : "memory");
  };
  auto wait_keys = [&] {  // the step past the end computes garbage that nothing reads
    if (!work.done()) barrier_wait(memory.k_full(n % kStages), (n / kStages) & 1);
  };
  auto issue_scores = [&] {
    const uint64_t a = wgmma_descriptor(memory.q + (number & 1) * kTileBytes + warpgroup * 8192);
    const uint64_t b = wgmma_descriptor(memory.k + n % kStages * kTileBytes);
#pragma unroll
    for (int k = 0; k < D / 16; ++k) {
      const int off = (k >> 2) * (kBlockBytes >> 4) + (k & 3) * 2;
      wgmma_abt(scores, a + off, b + off, k > 0);
    }
    wgmma_commit();
  };
  auto release_keys = [&] {  // the step's scores are in registers
    if (lane == 0 && !work.done()) {
      barrier_arrive(memory.k_empty(n % kStages));
      if (c == work.chunks() - 1) barrier_arrive(memory.q_empty(number & 1));
    }
  };
  auto softmax = [&] {
    if (work.pos + group_row < c * kChunk + kChunk - 1) mask_chunk(scores, work.pos + r0, c, t);  // on the diagonal
    softmax_chunk(scores, 0, scale_log2, chunk_max[0], chunk_sum[0]);
    softmax_chunk(scores, 1, scale_log2, chunk_max[1], chunk_sum[1]);
  };
  if (warpgroup == 0) turn_pass(1);  // warpgroup 0 goes first
  next_work();
  wait_keys();
  turn_wait(1 + warpgroup);
  wgmma_fence();
  issue_scores();
  turn_pass(2 - warpgroup);
  wgmma_wait<0>();
  wgmma_pin(scores);
  release_keys();
  softmax();
  while (!work.done()) {
#pragma unroll
    for (int j = 0; j < 32; ++j) weights[j] = pack_bf16(scores[2 * j], scores[2 * j + 1]);
    const int vs = n % kStages, v_phase = (n / kStages) & 1, row = work.row, count = work.count;
    const int head = kPair ? work.unit * 2 + warpgroup : work.unit;
    const bool last = c == work.chunks() - 1;
    if (++c, ++n; last) c = 0, ++number, next_work();
    const Merge m0(max[0], sum[0], chunk_max[0], chunk_sum[0], scale_log2);
    const Merge m1(max[1], sum[1], chunk_max[1], chunk_sum[1], scale_log2);
    float oc[32];
    auto issue_values = [&](int half) {
      const uint64_t b = wgmma_descriptor(memory.v + vs * kTileBytes + half * kBlockBytes);
      wgmma_fence();
#pragma unroll
      for (int k = 0; k < 8; ++k) wgmma_ab(oc, weights + 4 * k, b + k * (2048 >> 4), k > 0);
      wgmma_commit();
    };
    auto merge_values = [&](int half) {
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        float* d = o + half * 32 + 4 * j;
        d[0] = m0(d[0], oc[4 * j]), d[1] = m0(d[1], oc[4 * j + 1]);
        d[2] = m1(d[2], oc[4 * j + 2]), d[3] = m1(d[3], oc[4 * j + 3]);
      }
    };
    barrier_wait(memory.v_full(vs), v_phase);
    wait_keys();
    turn_wait(1 + warpgroup);
    issue_values(0);
    issue_scores();
    wgmma_wait<1>();
    wgmma_pin(oc);
    merge_values(0);
    if constexpr (kHalves == 2) issue_values(1);
    turn_pass(2 - warpgroup);
    wgmma_wait<kHalves - 1>();
    wgmma_pin(scores);
    release_keys();
    softmax();
    if constexpr (kHalves == 2) {
      wgmma_wait<0>();
      wgmma_pin(oc);
    }
    if (lane == 0) barrier_arrive(memory.v_empty(vs));
    if constexpr (kHalves == 2) merge_values(1);
    if (last) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int r = r0 + half * 8;
        const int64_t at = static_cast<int64_t>(row + r) * p.shape.heads + head;
        store_row<D>(o, half, inverse(sum[half]), p.out + at * D, t, r < count);
        if (r < count && t == 0) p.logsumexp[at] = log_sum(max[half], sum[half], p.shape.scale);
        max[half] = -INFINITY, sum[half] = 0.0f;
      }
#pragma unroll
      for (int j = 0; j < D / 2; ++j) o[j] = 0.0f;
    }
  }
  if (warpgroup == 0) turn_wait(1);  // absorb the last pass
  wgmma_wait<0>();
}

template <int D, bool kPaged, bool kPair>
__global__ void __launch_bounds__(kThreads, 1) forward_kernel(const ForwardArgs p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ uint8_t raw[];
  const Memory<D> memory(shared_address(raw));
  if (threadIdx.x == 0) memory.init();
  __syncthreads();
  const int warpgroup = __shfl_sync(~0u, threadIdx.x >> 7, 0);
  if (warpgroup == 2) {
    drop_registers<40>();
    load_tiles<D, kPaged, kPair>(p, memory);
  } else {
    raise_registers<232>();
    attend<D, kPair>(p, memory, warpgroup);
  }
#else
  __trap();
#endif
}

template <int D, bool kPaged, bool kPair>
cudaError_t launch(const ForwardArgs& args, const AttentionDevice& device, cudaStream_t stream) {
  const auto kernel = forward_kernel<D, kPaged, kPair>;
  constexpr int kBytes = Memory<D>::kBytes;
  const auto error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (error != cudaSuccess) return error;
  const int work = args.num_tiles * (kPair ? args.shape.heads / 2 : args.shape.heads);
  kernel<<<std::min(work, device.multiprocessors), kThreads, kBytes, stream>>>(args);
  return cudaGetLastError();
}

template <int D>
cudaError_t launch(const ForwardArgs& args, bool paged, const AttentionDevice& device, cudaStream_t stream) {
  const bool pair = query_tile_rows(args.shape.heads / args.shape.kv_heads) == 64;
  if (paged) return pair ? launch<D, true, true>(args, device, stream) : launch<D, true, false>(args, device, stream);
  return pair ? launch<D, false, true>(args, device, stream) : launch<D, false, false>(args, device, stream);
}

}  // namespace

cudaError_t forward_wgmma(const ForwardArgs& args, bool paged, const AttentionDevice& device, cudaStream_t stream) {
  return args.shape.head_dim == 128 ? launch<128>(args, paged, device, stream)
                                    : launch<64>(args, paged, device, stream);
}

cudaError_t forward_wgmma_attributes(cudaFuncAttributes& attributes) {
  return cudaFuncGetAttributes(&attributes, forward_kernel<128, false, true>);
}

}  // namespace tandem::cuda
