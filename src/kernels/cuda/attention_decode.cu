// Decode: one query a sequence over the paged cache. Independent warps stream items (up to 16 query rows × one chunk
// of keys) and write partial results; a second kernel merges a sequence's chunks in ascending order.
#include <algorithm>

#include "kernels/cuda/attention.h"
#include "kernels/cuda/attention_numerics.cuh"

namespace tandem::cuda {
namespace {

constexpr int kWarps = 4, kBlocksPerMultiprocessor = 3;
constexpr int kPagesPerChunk = kChunk / kKvPage;

// Per warp: a ring of page-sized slots filled by asynchronous copies. An item takes a slot for its queries, one per
// page of keys, one per page of values; loading runs kSlots - 1 slots ahead of computing, across items.
template <int D>
struct Ring {
  static constexpr int kSlotBytes = kKvPage * D * 2, kSlots = 4 * 128 / D, kBytes = kSlots * kSlotBytes;
  static constexpr int kPieces = D / 8;              // of 16 bytes in a row
  static constexpr int kRowsPerPass = 32 / kPieces;  // rows that a warp copies at once
  // Piece c of row r lies at piece c ^ (r & 7), free of bank conflicts for ldmatrix.
  static __device__ __forceinline__ int offset(int row, int piece) { return row * D * 2 + ((piece ^ (row & 7)) << 4); }
};

struct Partials {
  float* out;       // [slots][H][D]
  float2* max_sum;  // [slots][H], maxima of raw scores
};
Partials partials(const DecodeAttention& p) {
  auto* out = static_cast<float*>(p.workspace);
  const int64_t rows = static_cast<int64_t>(p.max_slots) * p.shape.heads;
  return {out, reinterpret_cast<float2*>(out + rows * p.shape.head_dim)};
}

// A warp's items, one after another; the next one's lists are fetched while this one is worked on.
class ItemWalker {
 public:
  __device__ __forceinline__ ItemWalker(const DecodeAttention& args, int first, int stride)
      : p_(args),
        index_(first),
        stride_(stride),
        total_(__ldg(&args.counts->items) * args.shape.kv_heads),
        lane_(threadIdx.x & 31),
        lane_member_(lane_ / (args.shape.heads / args.shape.kv_heads)) {
    fetch(index_, item, page, member);
    fetch(index_ + stride_, next_item_, next_page_, next_member_);
    head = index_ % p_.shape.kv_heads;
  }
  __device__ __forceinline__ bool done() const { return index_ >= total_; }
  __device__ __forceinline__ int pages() const { return (item.keys + kKvPage - 1) / kKvPage; }
  __device__ __forceinline__ void advance() {
    index_ += stride_;
    item = next_item_, page = next_page_, member = next_member_;
    head = index_ % p_.shape.kv_heads;
    fetch(index_ + stride_, next_item_, next_page_, next_member_);
  }

  DecodeItem item;
  int page;             // lane i < 8: page i of the chunk
  DecodeMember member;  // lane i < 16: the sequence and slot of row i
  int head;             // KV head

 private:
  __device__ __forceinline__ void fetch(int index, DecodeItem& it, int& pg, DecodeMember& mem) const {
    it = {0, 0, 0, 0}, pg = 0, mem = {0, 0};
    if (index >= total_) return;
    const int4 v = __ldg(reinterpret_cast<const int4*>(p_.items) + index / p_.shape.kv_heads);
    it = {v.x, v.y, v.z, v.w};
    if (lane_ * kKvPage < it.keys) pg = __ldg(p_.kv.page_table + it.first_page + lane_);
    if (lane_member_ < it.num_members) {
      const int2 m = __ldg(reinterpret_cast<const int2*>(p_.members) + it.first_member + lane_member_);
      mem = {m.x, m.y};
    }
  }

  const DecodeAttention& p_;
  int index_, stride_, total_, lane_, lane_member_;
  DecodeItem next_item_;
  int next_page_;
  DecodeMember next_member_;
};

template <int D>
class ItemLoader {
 public:
  using R = Ring<D>;
  __device__ __forceinline__ ItemLoader(const DecodeAttention& args, uint32_t ring, int first, int stride)
      : p_(args), ring_(ring), group_(args.shape.heads / args.shape.kv_heads), walk_(args, first, stride) {
    const int lane = threadIdx.x & 31;
    lane_row_ = lane / R::kPieces, lane_piece_ = lane % R::kPieces;
  }

  __device__ __forceinline__ void issue() {
    if (!walk_.done()) {
      const uint32_t target = ring_ + slot_ * R::kSlotBytes;
      const int pages = walk_.pages();
      if (unit_ == 0)
        load_queries(target);
      else
        load_page(target, unit_ > pages, unit_ > pages ? unit_ - 1 - pages : unit_ - 1);
      if (++unit_ > 2 * pages) {
        unit_ = 0;
        walk_.advance();
      }
      if (++slot_ == R::kSlots) slot_ = 0;
    }
    commit_copies();
  }

 private:
  __device__ __forceinline__ void load_queries(uint32_t target) const {
    const int rows = walk_.item.num_members * group_;
    for (int first = 0; first < rows; first += R::kRowsPerPass) {
      const int r = first + lane_row_;
      const int sequence = __shfl_sync(~0u, walk_.member.sequence, r);
      const __nv_bfloat16* source =
          p_.q_SHD + sequence * p_.q_stride + (walk_.head * group_ + r % group_) * D + lane_piece_ * 8;
      if (r < rows) copy_async(target + R::offset(r, lane_piece_), source);
    }
  }

  __device__ __forceinline__ void load_page(uint32_t target, bool values, int i) const {
    const int64_t id = __shfl_sync(~0u, walk_.page, i);
    const int head = values ? p_.shape.kv_heads + walk_.head : walk_.head;
    const __nv_bfloat16* source = p_.kv.pages + id * p_.kv.page_stride + head * (kKvPage * D) + (threadIdx.x & 31) * 8;
    const int rest = walk_.item.keys - i * kKvPage;
    constexpr int kPasses = kKvPage / R::kRowsPerPass;
    if (rest >= kKvPage) {
#pragma unroll
      for (int n = 0; n < kPasses; ++n)
        copy_async(target + R::offset(n * R::kRowsPerPass + lane_row_, lane_piece_), source + n * 256);
    } else {  // rows past the last key become zeros: 0 · garbage must stay 0
#pragma unroll
      for (int n = 0; n < kPasses; ++n) {
        const int r = n * R::kRowsPerPass + lane_row_;
        copy_async_or_zero(target + R::offset(r, lane_piece_), source + n * 256, r < rest);
      }
    }
  }

  const DecodeAttention& p_;
  uint32_t ring_;
  int group_, lane_row_, lane_piece_, unit_ = 0, slot_ = 0;
  ItemWalker walk_;
};

template <int D>
__global__ void __launch_bounds__(kWarps * 32, kBlocksPerMultiprocessor)
    decode_kernel(const DecodeAttention p, const Partials partial) {
  using R = Ring<D>;
  extern __shared__ __align__(1024) uint8_t memory[];
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
  const uint32_t ring = shared_address(memory) + warp * R::kBytes;
  const int first = blockIdx.x * kWarps + warp, stride = gridDim.x * kWarps;
  const int group = p.shape.heads / p.shape.kv_heads;
  const float scale_log2 = p.shape.scale * kLog2e;
  launch_dependents();

  ItemLoader<D> loader(p, ring, first, stride);
#pragma unroll 1
  for (int i = 0; i < R::kSlots - 1; ++i) loader.issue();
  int slot = R::kSlots - 1;
  auto next = [&]() -> uint32_t {  // waits for the next slot, refills the one before it
    wait_copies<R::kSlots - 2>();
    __syncwarp();
    loader.issue();
    if (++slot == R::kSlots) slot = 0;
    return ring + slot * R::kSlotBytes;
  };
  const int mr = lane & 7, mq = lane >> 3;  // ldmatrix: the lane gives the address of row mr of matrix mq

  for (ItemWalker walk(p, first, stride); !walk.done(); walk.advance()) {
    const int rows = walk.item.num_members * group, keys = walk.item.keys, pages = walk.pages();
    uint32_t qf[D / 16][4];
    {
      const uint32_t a = next() + (mr + (mq & 1) * 8) * (D * 2);
#pragma unroll
      for (int k = 0; k < D / 16; ++k) load_matrices(qf[k], a + (((2 * k + (mq >> 1)) ^ mr) << 4));
    }
    float s[64];
#pragma unroll
    for (int pg = 0; pg < kPagesPerChunk; ++pg) {
      if (pg < pages) {
        const uint32_t a = next() + (mr + (mq >> 1) * 8) * (D * 2);
#pragma unroll
        for (int n = 0; n < 8; ++n) s[8 * pg + n] = 0.0f;
#pragma unroll
        for (int k = 0; k < D / 16; ++k) {
          uint32_t b[4];
          load_matrices(b, a + (((2 * k + (mq & 1)) ^ mr) << 4));
          mma(s + 8 * pg, qf[k], b[0], b[1]);
          mma(s + 8 * pg + 4, qf[k], b[2], b[3]);
        }
        if (keys < (pg + 1) * kKvPage) {
#pragma unroll
          for (int n = 0; n < 8; ++n)
            if (pg * kKvPage + (n >> 2) * 8 + 2 * t + (n & 1) >= keys) s[8 * pg + n] = -INFINITY;
        }
      } else {
#pragma unroll
        for (int n = 0; n < 8; ++n) s[8 * pg + n] = -INFINITY;
      }
    }
    float max[2], sum[2];
    softmax_chunk(s, 0, scale_log2, max[0], sum[0]);
    softmax_chunk(s, 1, scale_log2, max[1], sum[1]);
    uint32_t weights[32];
#pragma unroll
    for (int j = 0; j < 32; ++j) weights[j] = pack_bf16(s[2 * j], s[2 * j + 1]);

    float o[D / 2];
#pragma unroll
    for (int j = 0; j < D / 2; ++j) o[j] = 0.0f;
#pragma unroll
    for (int pg = 0; pg < kPagesPerChunk; ++pg) {
      if (pg < pages) {
        const uint32_t a = next() + (mr + (mq & 1) * 8) * (D * 2);
#pragma unroll
        for (int d = 0; d < D / 16; ++d) {
          uint32_t b[4];
          load_matrices_transposed(b, a + (((2 * d + (mq >> 1)) ^ mr) << 4));
          mma(o + 8 * d, weights + 4 * pg, b[0], b[1]);
          mma(o + 8 * d + 4, weights + 4 * pg, b[2], b[3]);
        }
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int r = g + half * 8;
      const int64_t to = __shfl_sync(~0u, walk.member.slot, r);
      if (r < rows) {
        const int64_t at = to * p.shape.heads + walk.head * group + r % group;
        float* target = partial.out + at * D + 2 * t;
#pragma unroll
        for (int j = 0; j < D / 8; ++j)
          *reinterpret_cast<float2*>(target + 8 * j) = make_float2(o[4 * j + 2 * half], o[4 * j + 2 * half + 1]);
        if (t == 0) partial.max_sum[at] = make_float2(max[half], sum[half]);
      }
    }
  }
  wait_copies<0>();
}

constexpr int kMergeWarps = 8;

// One warp per (sequence, head).
template <int D>
__global__ void __launch_bounds__(kMergeWarps * 32) merge_kernel(const DecodeAttention p, const Partials partial) {
  constexpr int kPerLane = D / 32;
  const int id = blockIdx.x * kMergeWarps + (threadIdx.x >> 5), lane = threadIdx.x & 31;
  wait_for_prerequisites();  // decode_kernel's partial results are complete
  if (id >= __ldg(&p.counts->sequences) * p.shape.heads) return;
  const SlotRange range = p.slots[id / p.shape.heads];
  const float scale_log2 = p.shape.scale * kLog2e;
  float max = -INFINITY, sum = 0.0f, o[kPerLane] = {};
#pragma unroll 4
  for (int c = 0; c < range.count; ++c) {
    const int64_t at = static_cast<int64_t>(range.first + c) * p.shape.heads + id % p.shape.heads;
    const float2 chunk = __ldcg(partial.max_sum + at);
    float oc[kPerLane];
    const float* source = partial.out + at * D + lane * kPerLane;
    if constexpr (kPerLane == 4) {
      const float4 v = __ldcg(reinterpret_cast<const float4*>(source));
      oc[0] = v.x, oc[1] = v.y, oc[2] = v.z, oc[3] = v.w;
    } else {
      const float2 v = __ldcg(reinterpret_cast<const float2*>(source));
      oc[0] = v.x, oc[1] = v.y;
    }
    const Merge merge(max, sum, chunk.x, chunk.y, scale_log2);
#pragma unroll
    for (int j = 0; j < kPerLane; ++j) o[j] = merge(o[j], oc[j]);
  }
  const float inv = inverse(sum);
  auto* target = reinterpret_cast<uint32_t*>(p.out_SHD + static_cast<int64_t>(id) * D) + lane * (kPerLane / 2);
#pragma unroll
  for (int j = 0; j < kPerLane / 2; ++j) target[j] = pack_bf16(__fmul_rn(o[2 * j], inv), __fmul_rn(o[2 * j + 1], inv));
  if (lane == 0) p.logsumexp_SH[id] = log_sum(max, sum, p.shape.scale);
}

template <int D>
cudaError_t launch(const DecodeAttention& args, const AttentionDevice& device, cudaStream_t stream) {
  constexpr int kBytes = kWarps * Ring<D>::kBytes;
  if (const auto error = cudaFuncSetAttribute(decode_kernel<D>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
      error != cudaSuccess)
    return error;
  const Partials partial = partials(args);
  const int64_t work = static_cast<int64_t>(args.max_items) * args.shape.kv_heads;
  const int64_t most = static_cast<int64_t>(kBlocksPerMultiprocessor) * device.multiprocessors;
  const auto blocks = static_cast<unsigned>(std::min(most, (work + kWarps - 1) / kWarps));
  decode_kernel<D><<<blocks, kWarps * 32, kBytes, stream>>>(args, partial);
  if (const auto error = cudaGetLastError(); error != cudaSuccess) return error;

  cudaLaunchAttribute overlap{};  // the merge's launch overlaps the end of decode
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = static_cast<unsigned>((args.max_sequences * args.shape.heads + kMergeWarps - 1) / kMergeWarps);
  config.blockDim = kMergeWarps * 32;
  config.stream = stream;
  config.attrs = &overlap;
  config.numAttrs = device.wgmma ? 1 : 0;
  return cudaLaunchKernelEx(&config, merge_kernel<D>, args, partial);
}

}  // namespace

int64_t decode_attention_workspace(const AttentionShape& shape, int32_t max_slots) {
  return static_cast<int64_t>(max_slots) * shape.heads * (shape.head_dim + 2) * static_cast<int64_t>(sizeof(float));
}

cudaError_t decode_attention(const DecodeAttention& args, const AttentionDevice& device, cudaStream_t stream) {
  if (!is_supported(args.shape)) return cudaErrorInvalidValue;
  return args.shape.head_dim == 128 ? launch<128>(args, device, stream) : launch<64>(args, device, stream);
}

}  // namespace tandem::cuda
