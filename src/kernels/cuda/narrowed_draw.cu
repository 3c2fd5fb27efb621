// What top_k, top_p and min_p keep is always a prefix of the ids ordered by logit, likeliest first, of equals the
// lowest id first; and the draw is the first of that order at which the running sum passes its goal. So all are one
// question, "the first id at which the running count (or weight) reaches a goal", answered without sorting the row: a
// histogram of ordered bins finds the bin, and only a bin that is small enough is sorted. Weights are exp(x − max) in
// fixed point, so that their sums are exact in any order.
#include "kernels/cuda/narrowed_draw.cuh"

namespace tandem::cuda {
namespace {

constexpr int kThreads = 512;
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
  Amount all;                       // that may be drawn
  unsigned long long min_p_weight;  // of what min_p keeps
  uint32_t low_key, high_key, num_listed;
  float top;
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
  float top;

  __device__ float below(float logit) const { return top - scaled(logit, r.inv_temperature); }
  __device__ int bin(float logit) const { return min(static_cast<int>(below(logit) * (kBins / kReach)), kBins - 1); }
  __device__ unsigned long long weight(float logit) const {
    return static_cast<unsigned long long>(static_cast<double>(expf(-below(logit))) * kOne + 0.5);
  }
  // fn(id, logit) for every id that may be drawn and weighs anything, by all threads.
  template <class Fn>
  __device__ void for_each(Fn fn) const {
    constexpr int kInFlight = 4;
    constexpr int64_t kStep = int64_t{kThreads} * kQuad;
    for (int64_t base = threadIdx.x * kQuad; base < r.drawable; base += kInFlight * kStep) {
      float4 quads[kInFlight];
#pragma unroll
      for (int i = 0; i < kInFlight; ++i)
        if (base + i * kStep < r.drawable) quads[i] = r.quad(base + i * kStep);
#pragma unroll
      for (int i = 0; i < kInFlight; ++i) {
        const int64_t id = base + i * kStep;
        if (id >= r.drawable) continue;
        const float logits[kQuad] = {quads[i].x, quads[i].y, quads[i].z, quads[i].w};
#pragma unroll
        for (int j = 0; j < kQuad; ++j)
          if (below(logits[j]) < kReach && r.may_draw(id + j)) fn(static_cast<uint32_t>(id + j), logits[j]);
      }
    }
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
        const unsigned long long a = s.sorted[i], b = s.sorted[other];
        if (other > i && (a > b) == ((i & run) == 0)) s.sorted[i] = b, s.sorted[other] = a;
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

// By all threads: the whole's histogram, its sums, and the weight of what min_p keeps.
__device__ void fill_whole(Shared& s, const Row& row, double min_p) {
  clear(s.whole);
  if (threadIdx.x == 0) s.min_p_weight = 0, s.all = {0, 0};
  __syncthreads();
  const float reach = min_p > 0 ? static_cast<float>(-log(min_p)) : kReach;
  unsigned long long kept = 0;
  Amount all{0, 0};
  row.for_each([&](uint32_t, float logit) {
    const unsigned long long weight = row.weight(logit);
    all.weight += weight, ++all.count;
    add(s.whole, row.bin(logit), weight);
    if (row.below(logit) <= reach) kept += weight;
  });
  kept = lanes_sum<kWarp>(kept), all.count = lanes_sum<kWarp>(all.count), all.weight = lanes_sum<kWarp>(all.weight);
  if (threadIdx.x % kWarp == 0) {
    atomicAdd(&s.min_p_weight, kept);
    atomicAdd(&s.all.count, all.count);
    atomicAdd(&s.all.weight, all.weight);
  }
  __syncthreads();
}

__device__ int32_t draw(Shared& s, const Row& row, const SamplingRow& settings, double uniform) {
  fill_whole(s, row, settings.min_p);
  unsigned long long kept = s.all.weight;
  if (settings.top_k > 0 && static_cast<unsigned long long>(settings.top_k) < s.all.count)
    kept = locate(s, row, {true, static_cast<unsigned long long>(settings.top_k)}).weight;
  if (settings.top_p < 1.0) {
    const auto goal = static_cast<unsigned long long>(ceil(settings.top_p * static_cast<double>(kept)));
    kept = locate(s, row, {false, max(goal, 1ull)}).weight;
  }
  if (settings.min_p > 0) kept = min(kept, s.min_p_weight);
  const auto goal = static_cast<unsigned long long>(floor(uniform * static_cast<double>(kept))) + 1;
  return locate(s, row, {false, min(goal, kept)}).id;
}

__global__ void __launch_bounds__(kThreads) narrowed_kernel(const SamplerInputs in, const SamplerOutputs out,
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
    id = s.top == kLowest ? kAllBarred : draw(s, {r, s.top}, settings, uniform_of(in, row));
  }
  if (threadIdx.x == 0) report(r, out, id);
}

}  // namespace

cudaError_t draw_narrowed(const SamplerInputs& in, const SamplerOutputs& out, const BlockStats* parts, bool aligned,
                          cudaStream_t stream) {
  static_assert(sizeof(Shared) <= 48 * 1024, "more would need the kernel's limit raised");
  narrowed_kernel<<<static_cast<unsigned>(in.logits.rows), kThreads, sizeof(Shared), stream>>>(in, out, parts, aligned);
  return cudaGetLastError();
}

}  // namespace tandem::cuda
