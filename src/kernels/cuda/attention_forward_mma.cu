// Prefill and training forward for any chip from sm_80 on, with the bits of the Hopper kernel; and the launchers, which
// choose between the two. Four warps take 16 query rows each of one head, chunk after chunk.
#include "kernels/cuda/attention_forward.cuh"
#include "kernels/cuda/attention_numerics.cuh"

namespace tandem::cuda {
namespace {

constexpr int kRows = 64, kThreads = 128;
constexpr int kQueryBlockBytes = kRows * 128, kKeyBlockBytes = kChunk * 128;  // blocks of 64 columns

template <int D, bool kPaged>
__global__ void __launch_bounds__(kThreads) forward_kernel(const ForwardArgs p, int parts) {
  using Thread = TileThread<D>;
  extern __shared__ __align__(1024) uint8_t raw[];
  const uint32_t q = shared_address(raw), k = q + kRows * D * 2, v = k + kChunk * D * 2;
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, t = lane & 3;
  const int head = blockIdx.x % p.shape.heads, part = blockIdx.x / p.shape.heads % parts;
  QueryTile tile = p.tiles[blockIdx.x / (p.shape.heads * parts)];
  if (tile.count <= part * kRows) return;
  tile = {tile.row + part * kRows, min(kRows, tile.count - part * kRows), tile.pos + part * kRows, tile.kv};
  const int end = tile.pos + tile.count, chunks = num_chunks(end);
  const float scale_log2 = p.shape.scale * kLog2e;

  const Thread thread(threadIdx.x);
  const uint32_t put = thread.offset(kKeyBlockBytes);
  const KeyLoader<D, kPaged> loader{p, head / (p.shape.heads / p.shape.kv_heads), thread,
                                    fetch_sequence<kPaged>(p, tile)};
#pragma unroll
  for (int i = 0; i < kRows / Thread::kRowsPerPass; ++i) {
    const int r = i * Thread::kRowsPerPass + thread.row;
    const bool keep = r < tile.count;
    const bf16* source = p.q + (tile.row + (keep ? r : 0)) * p.q_stride + head * D + thread.piece * 8;
    copy_async_or_zero(q + thread.offset(kQueryBlockBytes) + i * Thread::kPassBytes, source, keep);
  }
  const int mr = lane & 7, mq = lane >> 3;  // ldmatrix: the lane gives the address of row mr of matrix mq
  auto load = [&](bool values, int chunk, int page) {
    loader.load(values, chunk, end, page, (values ? v : k) + put);
    commit_copies();
  };
  int page = fetch_page<kPaged>(p, tile, 0);
  load(false, 0, page);
  load(true, 0, page);

  float max[2] = {-INFINITY, -INFINITY}, sum[2] = {0.0f, 0.0f}, o[D / 2];
#pragma unroll
  for (int j = 0; j < D / 2; ++j) o[j] = 0.0f;
  for (int c = 0; c < chunks; ++c) {
    wait_copies<1>();
    __syncthreads();
    float scores[64];
#pragma unroll
    for (int j = 0; j < 64; ++j) scores[j] = 0.0f;
#pragma unroll
    for (int d = 0; d < D / 16; ++d) {
      uint32_t a[4];
      load_matrices(a, q + (d >> 2) * kQueryBlockBytes + (warp * 16 + mr + (mq & 1) * 8) * 128 +
                           (((2 * (d & 3) + (mq >> 1)) ^ mr) << 4));
#pragma unroll
      for (int j = 0; j < kChunk / 16; ++j) {
        uint32_t b[4];
        load_matrices(b, k + (d >> 2) * kKeyBlockBytes + (16 * j + mr + (mq >> 1) * 8) * 128 +
                             (((2 * (d & 3) + (mq & 1)) ^ mr) << 4));
        mma(scores + 8 * j, a, b[0], b[1]);
        mma(scores + 8 * j + 4, a, b[2], b[3]);
      }
    }
    __syncthreads();  // every warp has read the keys
    const int next_page = c + 1 < chunks ? fetch_page<kPaged>(p, tile, c + 1) : 0;
    if (c + 1 < chunks)
      load(false, c + 1, next_page);
    else
      commit_copies();
    const int r0 = warp * 16 + g;
    if (tile.pos < c * kChunk + kChunk - 1) mask_chunk(scores, tile.pos + r0, c, t);
    float chunk_max[2], chunk_sum[2];
    softmax_chunk(scores, 0, scale_log2, chunk_max[0], chunk_sum[0]);
    softmax_chunk(scores, 1, scale_log2, chunk_max[1], chunk_sum[1]);
    uint32_t weights[32];
#pragma unroll
    for (int j = 0; j < 32; ++j) weights[j] = pack_bf16(scores[2 * j], scores[2 * j + 1]);
    const Merge m0(max[0], sum[0], chunk_max[0], chunk_sum[0], scale_log2);
    const Merge m1(max[1], sum[1], chunk_max[1], chunk_sum[1], scale_log2);
    wait_copies<1>();
    __syncthreads();
#pragma unroll
    for (int half = 0; half < D / 64; ++half) {
      float oc[32];
#pragma unroll
      for (int j = 0; j < 32; ++j) oc[j] = 0.0f;
#pragma unroll
      for (int j = 0; j < kChunk / 16; ++j)
#pragma unroll
        for (int d = 0; d < 4; ++d) {
          uint32_t b[4];
          load_matrices_transposed(
              b, v + half * kKeyBlockBytes + (16 * j + mr + (mq & 1) * 8) * 128 + (((2 * d + (mq >> 1)) ^ mr) << 4));
          mma(oc + 8 * d, weights + 4 * j, b[0], b[1]);
          mma(oc + 8 * d + 4, weights + 4 * j, b[2], b[3]);
        }
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        float* d = o + half * 32 + 4 * j;
        d[0] = m0(d[0], oc[4 * j]), d[1] = m0(d[1], oc[4 * j + 1]);
        d[2] = m1(d[2], oc[4 * j + 2]), d[3] = m1(d[3], oc[4 * j + 3]);
      }
    }
    __syncthreads();  // every warp has read the values
    if (c + 1 < chunks)
      load(true, c + 1, next_page);
    else
      commit_copies();
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int r = warp * 16 + g + half * 8;
    const int64_t at = static_cast<int64_t>(tile.row + r) * p.shape.heads + head;
    store_row<D>(o, half, inverse(sum[half]), p.out + at * D, t, r < tile.count);
    if (r < tile.count && t == 0) p.logsumexp[at] = log_sum(max[half], sum[half], p.shape.scale);
  }
}

template <int D, bool kPaged>
cudaError_t launch(const ForwardArgs& args, cudaStream_t stream) {
  const auto kernel = forward_kernel<D, kPaged>;
  constexpr int kBytes = (kRows + 2 * kChunk) * D * 2;
  const auto error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (error != cudaSuccess) return error;
  const int parts = query_tile_rows(args.shape.heads / args.shape.kv_heads) / kRows;
  kernel<<<args.num_tiles * args.shape.heads * parts, kThreads, kBytes, stream>>>(args, parts);
  return cudaGetLastError();
}

cudaError_t forward(const ForwardArgs& args, bool paged, const AttentionDevice& device, cudaStream_t stream) {
  if (!is_supported(args.shape) || args.paged.page_stride >= int64_t{1} << 32) return cudaErrorInvalidValue;
  if (args.num_tiles == 0) return cudaSuccess;
  return device.wgmma ? forward_wgmma(args, paged, device, stream) : forward_mma(args, paged, stream);
}

}  // namespace

cudaError_t forward_mma(const ForwardArgs& args, bool paged, cudaStream_t stream) {
  if (args.shape.head_dim == 128) return paged ? launch<128, true>(args, stream) : launch<128, false>(args, stream);
  return paged ? launch<64, true>(args, stream) : launch<64, false>(args, stream);
}

cudaError_t attention_device(AttentionDevice& device) {
  int id = 0, major = 0, minor = 0;
  cudaError_t error = cudaGetDevice(&id);
  const auto ask = [&](int& value, cudaDeviceAttr attribute) {
    if (error == cudaSuccess) error = cudaDeviceGetAttribute(&value, attribute, id);
  };
  ask(device.multiprocessors, cudaDevAttrMultiProcessorCount);
  ask(major, cudaDevAttrComputeCapabilityMajor);
  ask(minor, cudaDevAttrComputeCapabilityMinor);
  // Code made from PTX for other chips holds no wgmma.
  cudaFuncAttributes attributes{};
  if (error == cudaSuccess) error = forward_wgmma_attributes(attributes);
  device.wgmma = major == 9 && minor == 0 && attributes.ptxVersion >= 90;
  return error;
}

cudaError_t paged_attention(const PagedAttention& p, const AttentionDevice& device, cudaStream_t stream) {
  const ForwardArgs args{p.shape, p.q_THD, p.q_stride, p.kv,        nullptr,   nullptr,
                         0,       nullptr, p.tiles,    p.num_tiles, p.out_THD, p.logsumexp_TH};
  return forward(args, true, device, stream);
}

cudaError_t packed_attention(const PackedAttention& p, const AttentionDevice& device, cudaStream_t stream) {
  const ForwardArgs args{p.shape,     p.q_THD,     p.q_stride, {},          p.k_TKD,   p.v_TKD,
                         p.kv_stride, p.sequences, p.tiles,    p.num_tiles, p.out_THD, p.logsumexp_TH};
  return forward(args, false, device, stream);
}

}  // namespace tandem::cuda
