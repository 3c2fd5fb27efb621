// The backward for any chip from sm_80 on, and the launcher, which chooses. Four warps take 16 rows each.
#include "kernels/cuda/attention_backward.cuh"

namespace tandem::cuda {
namespace {

constexpr int kRows = 64, kThreads = 128;

// One warp per row; heads one after another.
template <int D>
__global__ void __launch_bounds__(256) stats_kernel(const BackwardArgs a) {
  constexpr int kPerLane = D / 32;
  const int row = blockIdx.x * 8 + (threadIdx.x >> 5), lane = threadIdx.x & 31, heads = a.p.shape.heads;
  if (blockIdx.x == 0 && threadIdx.x < 2) a.counters[threadIdx.x] = 0;
  if (row >= a.p.rows) return;
#pragma unroll 4
  for (int h = 0; h < heads; ++h) {
    const int64_t at = (static_cast<int64_t>(row) * heads + h) * D + lane * kPerLane;
    const auto* out = reinterpret_cast<const __nv_bfloat162*>(a.p.out_THD + at);
    const auto* dout = reinterpret_cast<const __nv_bfloat162*>(a.p.dout_THD + at);
    float delta = 0.0f;
#pragma unroll
    for (int j = 0; j < kPerLane / 2; ++j) {
      const float2 x = __bfloat1622float2(out[j]), y = __bfloat1622float2(dout[j]);
      delta += x.x * y.x + x.y * y.y;
    }
#pragma unroll
    for (int step = 16; step > 0; step >>= 1) delta += __shfl_xor_sync(~0u, delta, step);
    if (lane == 0)
      a.stats_HT[static_cast<int64_t>(h) * a.p.rows + row] =
          make_float2(a.p.logsumexp_TH[static_cast<int64_t>(row) * heads + h] * kLog2e, delta);
  }
}

// dk and dv of 64 keys of a tile and one KV head.
template <int D>
__global__ void __launch_bounds__(kThreads) key_kernel(const BackwardArgs a) {
  extern __shared__ __align__(1024) uint8_t raw[];
  __shared__ float2 stats[kStep];
  constexpr int kTileBytes = kRows * D * 2;
  const uint32_t k = shared_address(raw), v = k + kTileBytes, q = v + kTileBytes, dout = q + kTileBytes;
  const int kv_heads = a.p.shape.kv_heads, kv_head = blockIdx.x % kv_heads, part = blockIdx.x / kv_heads % 2;
  const KeyTile tile = a.p.key_tiles[blockIdx.x / kv_heads / 2];
  const int first = part * kRows, count = min(kRows, tile.count - first);
  if (count <= 0) return;
  const int lane = threadIdx.x & 31, row = (threadIdx.x >> 5) * 16, g = lane >> 2, t = lane & 3;
  const float scale_log2 = a.p.shape.scale * kLog2e;
  const TileThread<D> thread(threadIdx.x);
  const int64_t at = (tile.row + first) * a.p.kv_stride + kv_head * D;
  load_tile<D, kRows>(thread, a.p.k_TKD + at, a.p.kv_stride, count, k);
  load_tile<D, kRows>(thread, a.p.v_TKD + at, a.p.kv_stride, count, v);

  float dk[D / 2], dv[D / 2];
#pragma unroll
  for (int j = 0; j < D / 2; ++j) dk[j] = dv[j] = 0.0f;
  const int key = tile.pos + first;
  for (int head = kv_head * a.group(); head < (kv_head + 1) * a.group(); ++head)
    for (int r = 0; r < tile.num_runs; ++r) {
      const QueryTile run = a.p.key_runs[tile.first_run + r];
      for (int i = run.pos + kStep <= key ? kStep : 0; i < run.count; i += kStep) {
        const int queries = min(kStep, run.count - i);
        __syncthreads();  // every warp is done with the step before
        load_tile<D, kStep>(thread, a.p.q_THD + (run.row + i) * a.p.q_stride + head * D, a.p.q_stride, queries, q);
        load_tile<D, kStep>(thread, a.p.dout_THD + (run.row + i) * a.dout_stride() + head * D, a.dout_stride(), queries,
                            dout);
        if (threadIdx.x < kStep)
          stats[threadIdx.x] = threadIdx.x < queries
                                   ? a.stats_HT[static_cast<int64_t>(head) * a.p.rows + run.row + i + threadIdx.x]
                                   : make_float2(0.0f, 0.0f);
        commit_copies();
        wait_copies<0>();
        __syncthreads();
        float s[32], dp[32];
        uint32_t weights[16], gradients[16];
        mma_abt<D, kRows>(s, k, row, q);
        weights_by_column(s, stats, scale_log2, run.pos + i - (key + row + g), t);
        pack_fragments(s, weights);
        mma_ab<D>(dv, weights, dout);
        mma_abt<D, kRows>(dp, v, row, dout);
        gradient_by_column(weights, dp, stats, t);
        pack_fragments(dp, gradients);
        mma_ab<D>(dk, gradients, q);
      }
    }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int r = row + g + 8 * half;
    const int64_t to = (tile.row + first + r) * a.p.dkv_stride + kv_head * D;
    store_row<D>(dk, half, a.p.shape.scale, a.p.dk_TKD + to, t, r < count);
    store_row<D>(dv, half, 1.0f, a.p.dv_TKD + to, t, r < count);
  }
}

// dq of 64 queries of a tile and one head.
template <int D>
__global__ void __launch_bounds__(kThreads) query_kernel(const BackwardArgs a, int parts) {
  extern __shared__ __align__(1024) uint8_t raw[];
  constexpr int kTileBytes = kRows * D * 2;
  const uint32_t q = shared_address(raw), dout = q + kTileBytes, k = dout + kTileBytes, v = k + kTileBytes;
  const int heads = a.p.shape.heads, head = blockIdx.x % heads, first = blockIdx.x / heads % parts * kRows;
  const QueryTile tile = a.p.query_tiles[blockIdx.x / heads / parts];
  const int count = min(kRows, tile.count - first), pos = tile.pos + first, end = pos + count;
  if (count <= 0) return;
  const PackedSequence sequence = a.p.sequences[tile.kv];
  const int lane = threadIdx.x & 31, row = (threadIdx.x >> 5) * 16, g = lane >> 2, t = lane & 3;
  const float scale_log2 = a.p.shape.scale * kLog2e;
  const TileThread<D> thread(threadIdx.x);
  const int64_t first_row = tile.row + first;
  load_tile<D, kRows>(thread, a.p.q_THD + first_row * a.p.q_stride + head * D, a.p.q_stride, count, q);
  load_tile<D, kRows>(thread, a.p.dout_THD + first_row * a.dout_stride() + head * D, a.dout_stride(), count, dout);
  float2 stats[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int r = min(row + g + 8 * half, count - 1);
    stats[half] = a.stats_HT[static_cast<int64_t>(head) * a.p.rows + first_row + r];
  }
  float dq[D / 2];
#pragma unroll
  for (int j = 0; j < D / 2; ++j) dq[j] = 0.0f;
  const int64_t column = static_cast<int64_t>(head / a.group()) * D;
  for (int step = 0; step * kStep < end; ++step) {
    __syncthreads();
    load_keys(thread, a.p.k_TKD + column, a.p.kv_stride, sequence, step, end, k);
    load_keys(thread, a.p.v_TKD + column, a.p.kv_stride, sequence, step, end, v);
    commit_copies();
    wait_copies<0>();
    __syncthreads();
    float s[32], dp[32];
    uint32_t fragments[16];
    mma_abt<D, kRows>(s, q, row, k);
    mma_abt<D, kRows>(dp, dout, row, v);
    weights_by_row(s, stats, scale_log2, pos + row + g - step * kStep, t);
    gradient_by_row(s, dp, stats);
    pack_fragments(dp, fragments);
    mma_ab<D>(dq, fragments, k);
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int r = row + g + 8 * half;
    store_row<D>(dq, half, a.p.shape.scale, a.p.dq_THD + (first_row + r) * a.p.dq_stride + head * D, t, r < count);
  }
}

template <int D>
cudaError_t launch(const BackwardArgs& a, cudaStream_t stream) {
  constexpr int kBytes = 4 * kRows * D * 2;
  for (const void* kernel :
       {reinterpret_cast<const void*>(key_kernel<D>), reinterpret_cast<const void*>(query_kernel<D>)})
    if (const auto error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
        error != cudaSuccess)
      return error;
  const int parts = query_tile_rows(a.p.shape.heads / a.p.shape.kv_heads) / kRows;
  key_kernel<D><<<a.p.num_key_tiles * a.p.shape.kv_heads * 2, kThreads, kBytes, stream>>>(a);
  query_kernel<D><<<a.p.num_query_tiles * a.p.shape.heads * parts, kThreads, kBytes, stream>>>(a, parts);
  return cudaGetLastError();
}

}  // namespace

cudaError_t backward_mma(const BackwardArgs& args, cudaStream_t stream) {
  return args.p.shape.head_dim == 128 ? launch<128>(args, stream) : launch<64>(args, stream);
}

int64_t packed_attention_backward_workspace(const AttentionShape& shape, int32_t rows) {
  return static_cast<int64_t>(rows) * shape.heads * static_cast<int64_t>(sizeof(float2)) + 2 * sizeof(int);
}

cudaError_t packed_attention_backward(const PackedAttentionBackward& p, const AttentionDevice& device,
                                      cudaStream_t stream) {
  if (!is_supported(p.shape)) return cudaErrorInvalidValue;
  if (p.num_query_tiles == 0) return cudaSuccess;
  auto* stats = static_cast<float2*>(p.workspace);
  const BackwardArgs args{p, stats, reinterpret_cast<int*>(stats + static_cast<int64_t>(p.rows) * p.shape.heads)};
  if (p.shape.head_dim == 128)
    stats_kernel<128><<<(p.rows + 7) / 8, 256, 0, stream>>>(args);
  else
    stats_kernel<64><<<(p.rows + 7) / 8, 256, 0, stream>>>(args);
  if (const auto error = cudaGetLastError(); error != cudaSuccess) return error;
  return device.wgmma ? backward_wgmma(args, device, stream) : backward_mma(args, stream);
}

}  // namespace tandem::cuda
