// What top_k, top_p and min_p keep is always a prefix of the ids ordered by logit, likeliest first, of equals the
// lowest id first; and the draw is the first of that order at which the running sum passes its goal. So all are one
// question, "the first id at which the running count (or weight) reaches a goal", answered without sorting the row: a
// histogram of ordered bins finds the bin, and only a bin that is small enough is sorted. Weights are exp(x − max) in
// fixed point, so that their sums are exact in any order.
#include "kernels/cuda/narrowed_draw.cuh"

namespace tandem::cuda {
namespace {

constexpr int kThreads = 256;  // at least kMaxBlocks
constexpr int kBins = 1024;
constexpr int kSortable = 2048;
constexpr float kReach = 32.0f;  // nats below the likeliest; what lies further down weighs less than the unit
constexpr double kOne = 0x1p44;

struct Histogram {
  unsigned long long weight[kBins];
  uint32_t count[kBins];
};

struct Amount {
  unsigned long long count, weight;
};

struct Shared {
  Drawable blocks;
  Histogram whole, part;
  unsigned long long sorted[kSortable];
  Amount binned;                    // what the whole's histogram holds
  unsigned long long all_weight;    // of what may be drawn
  unsigned long long min_p_weight;  // of what min_p keeps, of that
  uint32_t low_key, high_key, num_listed;
  float top, reach;
  // Answers that one thread gives to all.
  int bin;
  unsigned long long before;  // of the goal's kind, ahead of the bin
  unsigned long long before_weight;
};

// Ascending where logits descend.
__device__ uint32_t key_of(float logit) {
  const uint32_t bits = __float_as_uint(logit + 0.0f);  // −0 is 0
  return (bits & 0x80000000u) != 0 ? bits : ~(bits | 0x80000000u);
}
__device__ float logit_of(uint32_t key) { return __uint_as_float((key & 0x80000000u) != 0 ? key : ~key & 0x7fffffffu); }

struct Row {
  const SamplerRow& r;
  const Drawable& blocks;
  float top, reach;  // ids further below the top than `reach` matter to no question

  __device__ float below(float logit) const { return top - scaled(logit, r.inv_temperature); }
  __device__ int bin(float logit) const {
    return min(static_cast<int>(below(logit) * (kBins / fmaxf(reach, 1e-3f))), kBins - 1);
  }
  __device__ unsigned long long weight(float logit) const {
    return static_cast<unsigned long long>(static_cast<double>(expf(-below(logit))) * kOne + 0.5);
  }
  // fn(id, logit) for every id that may be drawn and lies within `limit` of the top, by all threads: a warp takes a
  // block, if its maximum does.
  template <class Fn>
  __device__ void for_each(float limit, Fn fn) const {
    const int64_t count = num_blocks(r.drawable);
    for (int64_t block = threadIdx.x / kWarp; block < count; block += kThreads / kWarp) {
      if (!(top - blocks.max[block] <= limit)) continue;
      float4 quads[kQuadsPerLane];
#pragma unroll
      for (int i = 0; i < kQuadsPerLane; ++i) quads[i] = r.quad(first_id(block) + i * kWarp * kQuad);
#pragma unroll
      for (int i = 0; i < kQuadsPerLane; ++i) {
        const int64_t id = first_id(block) + i * kWarp * kQuad;
        const float logits[kQuad] = {quads[i].x, quads[i].y, quads[i].z, quads[i].w};
#pragma unroll
        for (int j = 0; j < kQuad; ++j)
          if (below(logits[j]) <= limit && r.may_draw(id + j)) fn(static_cast<uint32_t>(id + j), logits[j]);
      }
    }
  }
  template <class Fn>
  __device__ void for_each(Fn fn) const {
    for_each(reach, fn);
  }
};

__device__ void clear(Histogram& h) {
  for (int i = threadIdx.x; i < kBins; i += kThreads) h.weight[i] = 0, h.count[i] = 0;
}
__device__ void add(Histogram& h, int bin, unsigned long long weight) {
  atomicAdd(&h.weight[bin], weight);
  atomicAdd(&h.count[bin], 1u);
}

// By warp 0: the first i < n at which the running sum of amount(i) (its count or its weight) reaches the goal; `ahead`
// is what came before it. The goal is within the sum.
struct Found {
  int index;
  Amount ahead;
};
template <class Fn>
__device__ Found find_first(int n, bool by_count, unsigned long long goal, Fn amount) {
  const int lane = threadIdx.x % kWarp, per_lane = (n + kWarp - 1) / kWarp;
  const int begin = lane * per_lane, end = min(n, begin + per_lane);
  Amount mine{0, 0};
  for (int i = begin; i < end; ++i) {
    const Amount a = amount(i);
    mine.count += a.count, mine.weight += a.weight;
  }
  Amount sum = mine;
#pragma unroll
  for (int offset = 1; offset < kWarp; offset *= 2) {
    const unsigned long long count = __shfl_up_sync(kAllLanes, sum.count, offset);
    const unsigned long long weight = __shfl_up_sync(kAllLanes, sum.weight, offset);
    if (lane >= offset) sum.count += count, sum.weight += weight;
  }
  const unsigned reached = __ballot_sync(kAllLanes, (by_count ? sum.count : sum.weight) >= goal);
  const int chosen = reached != 0 ? __ffs(reached) - 1 : kWarp - 1;
  Found found{begin, {sum.count - mine.count, sum.weight - mine.weight}};
  if (lane == chosen) {
    for (; found.index + 1 < end; ++found.index) {
      const Amount a = amount(found.index);
      if ((by_count ? found.ahead.count + a.count : found.ahead.weight + a.weight) >= goal) break;
      found.ahead.count += a.count, found.ahead.weight += a.weight;
    }
  }
  found.index = __shfl_sync(kAllLanes, found.index, chosen);
  found.ahead.count = __shfl_sync(kAllLanes, found.ahead.count, chosen);
  found.ahead.weight = __shfl_sync(kAllLanes, found.ahead.weight, chosen);
  return found;
}

struct Goal {
  bool by_count;
  unsigned long long amount;
};

// Finds the bin of the histogram that holds the goal, which becomes relative to it.
__device__ int enter_bin(Shared& s, const Histogram& h, Goal& goal, unsigned long long& weight_ahead) {
  __syncthreads();
  if (threadIdx.x < kWarp) {
    const Found found = find_first(kBins, goal.by_count, goal.amount, [&](int i) {
      return Amount{h.count[i], h.weight[i]};
    });
    if (threadIdx.x == 0) {
      s.bin = found.index, s.before_weight = found.ahead.weight;
      s.before = goal.by_count ? found.ahead.count : found.ahead.weight;
    }
  }
  __syncthreads();
  goal.amount -= s.before, weight_ahead += s.before_weight;
  return s.bin;
}

// Ids of one bin of the whole, with keys and ids in these bounds.
struct Bounds {
  int bin;
  uint32_t low_key, high_key, low_id, high_id;
};

__device__ void sort_listed(Shared& s, int n) {
  int size = 2;
  while (size < n) size *= 2;
  for (int i = n + threadIdx.x; i < size; i += kThreads) s.sorted[i] = ~0ull;
  for (int run = 2; run <= size; run *= 2) {
    for (int step = run / 2; step > 0; step /= 2) {
      __syncthreads();
      for (int i = threadIdx.x; i < size; i += kThreads) {
        const int other = i ^ step;
        if (other < i) continue;
        const unsigned long long a = s.sorted[i], b = s.sorted[other];
        if ((a > b) == ((i & run) == 0)) s.sorted[i] = b, s.sorted[other] = a;
      }
    }
  }
  __syncthreads();
}

struct Located {
  int32_t id;
  unsigned long long weight;  // of the prefix that ends with it
};

// The first id, likeliest first, at which the prefix reaches the goal. By all threads; the whole's histogram is there.
__device__ Located locate(Shared& s, const Row& row, Goal goal) {
  unsigned long long ahead = 0;
  Bounds in{enter_bin(s, s.whole, goal, ahead), 0, UINT32_MAX, 0, UINT32_MAX};
  uint32_t count = s.whole.count[in.bin];
  const auto inside = [&](uint32_t id, float logit) {
    const uint32_t key = key_of(logit);
    return row.bin(logit) == in.bin && key >= in.low_key && key <= in.high_key && id >= in.low_id && id <= in.high_id;
  };
  const auto refine = [&](auto bin_of) {
    clear(s.part);
    __syncthreads();
    row.for_each([&](uint32_t id, float logit) {
      if (inside(id, logit)) add(s.part, bin_of(id, logit), row.weight(logit));
    });
    const int bin = enter_bin(s, s.part, goal, ahead);
    count = s.part.count[bin];
    __syncthreads();
    return static_cast<uint32_t>(bin);
  };
  if (count > kSortable) {  // by keys, until one is left; then by ids
    if (threadIdx.x == 0) s.low_key = UINT32_MAX, s.high_key = 0;
    __syncthreads();
    row.for_each([&](uint32_t id, float logit) {
      if (!inside(id, logit)) return;
      atomicMin(&s.low_key, key_of(logit));
      atomicMax(&s.high_key, key_of(logit));
    });
    __syncthreads();
    in.low_key = s.low_key, in.high_key = s.high_key;
  }
  while (count > kSortable && in.low_key < in.high_key) {
    int shift = 0;
    while ((in.high_key - in.low_key) >> shift >= kBins) ++shift;
    in.low_key += refine([&](uint32_t, float logit) { return (key_of(logit) - in.low_key) >> shift; }) << shift;
    in.high_key = in.low_key + ((1u << shift) - 1);
  }
  if (count > kSortable) {
    constexpr uint32_t kIdsPerBin = kMaxVocabulary / kBins;
    in.low_id = refine([](uint32_t id, float) { return id / kIdsPerBin; }) * kIdsPerBin;
    in.high_id = in.low_id + kIdsPerBin - 1;
  }

  if (threadIdx.x == 0) s.num_listed = 0;
  __syncthreads();
  row.for_each([&](uint32_t id, float logit) {
    if (inside(id, logit))
      s.sorted[atomicAdd(&s.num_listed, 1u)] = static_cast<unsigned long long>(key_of(logit)) << 32 | id;
  });
  __syncthreads();
  const int listed = static_cast<int>(s.num_listed);
  sort_listed(s, listed);
  const auto weight = [&](int i) { return row.weight(logit_of(static_cast<uint32_t>(s.sorted[i] >> 32))); };
  if (threadIdx.x < kWarp) {
    const Found found = find_first(listed, goal.by_count, goal.amount, [&](int i) { return Amount{1, weight(i)}; });
    if (threadIdx.x == 0) s.bin = found.index, s.before_weight = found.ahead.weight + weight(found.index);
  }
  __syncthreads();
  const Located located{static_cast<int32_t>(s.sorted[s.bin] & 0xffffffffu), ahead + s.before_weight};
  __syncthreads();
  return located;
}

__device__ bool uses_top_k(const SamplingRow& s) { return s.top_k > 0; }
__device__ float reach_of(double min_p) { return static_cast<float>(-log(min_p)); }

// How far below the top an id that is kept can lie, in nats. With top_k no further than the k-th greatest maximum of a
// block, since k blocks hold k ids that reach theirs. With top_p no further than where all ids together would weigh
// less than 1 − p of the whole. By all threads, into s.reach.
__device__ void find_reach(Shared& s, const SamplerRow& r, const SamplingRow& settings) {
  const int count = static_cast<int>(num_blocks(r.vocabulary)), mine = threadIdx.x;
  if (threadIdx.x == 0) s.reach = kReach;
  __syncthreads();
  if (uses_top_k(settings)) {
    int rank = 0;
    for (int b = 0; mine < count && b < count; ++b)
      rank += s.blocks.max[b] > s.blocks.max[mine] || (s.blocks.max[b] == s.blocks.max[mine] && b < mine) ? 1 : 0;
    if (mine < count && rank == settings.top_k - 1) s.reach = fminf(kReach, s.top - s.blocks.max[mine]);
  } else if (settings.top_p < 1.0 && threadIdx.x < kWarp) {
    double total = 0;
    for (int b = threadIdx.x; b < count; b += kWarp)
      total += s.blocks.sum[b] * exp(static_cast<double>(s.blocks.max[b]) - s.top);
    total = lanes_sum<kWarp>(total);
    const double rest = (1.0 - settings.top_p) * total, ids = static_cast<double>(r.vocabulary);
    if (threadIdx.x == 0) s.reach = fminf(kReach, static_cast<float>(log(ids / rest) + 0.01));
  }
  __syncthreads();
  // With top_k the share that top_p asks for is of what top_k keeps, so min_p must not hide any of that.
  const bool min_p_ends = settings.min_p > 0 && (settings.top_p >= 1.0 || !uses_top_k(settings));
  if (threadIdx.x == 0 && min_p_ends) s.reach = fminf(s.reach, reach_of(settings.min_p));
  __syncthreads();
}

// By all threads: the whole's histogram, and the sums beside it.
__device__ void fill_whole(Shared& s, const Row& row, const SamplingRow& settings) {
  clear(s.whole);
  if (threadIdx.x == 0) s.min_p_weight = s.all_weight = 0, s.binned = {0, 0};
  __syncthreads();
  const float min_p_reach = settings.min_p > 0 ? reach_of(settings.min_p) : kReach;
  unsigned long long all = 0, min_p_weight = 0;
  Amount binned{0, 0};
  row.for_each(settings.top_p < 1.0 && !uses_top_k(settings) ? kReach : row.reach, [&](uint32_t, float logit) {
    const unsigned long long weight = row.weight(logit);
    const float below = row.below(logit);
    all += weight;
    if (below <= min_p_reach) min_p_weight += weight;
    if (below > row.reach) return;
    add(s.whole, row.bin(logit), weight);
    binned.weight += weight, ++binned.count;
  });
  const auto total = [](unsigned long long& to, unsigned long long mine) {
    mine = lanes_sum<kWarp>(mine);
    if (threadIdx.x % kWarp == 0) atomicAdd(&to, mine);
  };
  total(s.all_weight, all);
  total(s.min_p_weight, min_p_weight);
  total(s.binned.count, binned.count);
  total(s.binned.weight, binned.weight);
  __syncthreads();
}

__device__ int32_t draw(Shared& s, const Row& row, const SamplingRow& settings, double uniform) {
  fill_whole(s, row, settings);
  unsigned long long kept = s.all_weight;
  if (uses_top_k(settings)) {
    const auto k = static_cast<unsigned long long>(settings.top_k);
    kept = k < s.binned.count ? locate(s, row, {true, k}).weight : s.binned.weight;
  }
  if (settings.top_p < 1.0) {
    const auto goal = static_cast<unsigned long long>(ceil(settings.top_p * static_cast<double>(kept)));
    kept = goal < s.binned.weight ? locate(s, row, {false, max(goal, 1ull)}).weight : s.binned.weight;
  }
  if (settings.min_p > 0) kept = min(kept, s.min_p_weight);
  const auto goal = static_cast<unsigned long long>(floor(uniform * static_cast<double>(kept))) + 1;
  return locate(s, row, {false, min(goal, kept)}).id;
}

__global__ void __launch_bounds__(kThreads, 3) narrowed_kernel(const SamplerInputs in, const SamplerOutputs out,
                                                               const BlockStats* __restrict__ parts, bool aligned) {
  extern __shared__ __align__(16) unsigned char memory[];
  Shared& s = *reinterpret_cast<Shared*>(memory);
  const int64_t row = blockIdx.x;
  const SamplingRow& settings = in.rows_R[row];
  if (!narrows(settings, in.logits.vocabulary)) return;
  const SamplerRow r = sampler_row(in, out.stats, row, aligned);
  int32_t id = kNotFinite;
  if (finite(r)) {
    if (threadIdx.x < kWarp) {
      const float top = load_drawable(r, parts, s.blocks);
      if (threadIdx.x == 0) s.top = top;
    }
    __syncthreads();
    if (s.top != kLowest) {
      find_reach(s, r, settings);
      id = draw(s, {r, s.blocks, s.top, s.reach}, settings, uniform_of(in, row));
    } else {
      id = kAllBarred;
    }
  }
  if (threadIdx.x == 0) report(r, out, id);
}

}  // namespace

cudaError_t draw_narrowed(const SamplerInputs& in, const SamplerOutputs& out, const BlockStats* parts, bool aligned,
                          cudaStream_t stream) {
  static_assert(kThreads >= kMaxBlocks, "a thread ranks a block");
  static_assert(sizeof(Shared) <= 48 * 1024, "more would need the kernel's limit raised");
  narrowed_kernel<<<static_cast<unsigned>(in.logits.rows), kThreads, sizeof(Shared), stream>>>(in, out, parts, aligned);
  return cudaGetLastError();
}

}  // namespace tandem::cuda
