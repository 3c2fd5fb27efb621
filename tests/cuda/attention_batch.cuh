// A batch of prompts and their samples in every form that the attention kernels take, filled with random numbers.
// Unused slots of pages hold NaN; page ids are scattered; a group's whole prompt pages are shared.
#pragma once

#include <cmath>
#include <numeric>
#include <random>
#include <utility>

#include "attention_harness.cuh"
#include "kernels/cuda/attention.h"

namespace tandem::cuda::test {

struct Group {
  int32_t prompt;                // keys that its samples share
  std::vector<int32_t> lengths;  // of whole samples, each longer than the prompt
};
struct Case {
  const char* name;
  int32_t heads, kv_heads, head_dim;
  std::vector<Group> groups;
  float qk_scale = 1, v_scale = 1;
  bool wide = false;  // exponents spread over 2^25
};
struct Sample {
  int32_t group, prompt, prompt_row, own_row, length, flat_row;
  int32_t row_of(int32_t position) const {
    return position < prompt ? prompt_row + position : own_row + position - prompt;
  }
};

// "Packed": prompts once, then their samples' own rows. "Flat": every sample whole.
struct Batch {
  Case form;
  std::vector<Sample> samples;
  std::vector<PackedSequence> packed_sequences, flat_sequences;
  int32_t packed_rows = 0, flat_rows = 0, table_stride = 0, num_pages = 0;
  std::vector<int32_t> flat_to_packed, page_table;
  Device<bf16> packed, flat, pages;  // rows of [q | k | v] heads; pages
  Device<int32_t> device_table;

  int32_t width() const { return (form.heads + 2 * form.kv_heads) * form.head_dim; }
  int32_t head_group() const { return form.heads / form.kv_heads; }
  int64_t page_stride() const { return int64_t{2} * form.kv_heads * kKvPage * form.head_dim + 64; }
  AttentionShape shape() const {
    return {form.heads, form.kv_heads, form.head_dim, 1.0f / std::sqrt(static_cast<float>(form.head_dim))};
  }
  const bf16* k(const Device<bf16>& rows) const { return rows.get() + form.heads * form.head_dim; }
  const bf16* v(const Device<bf16>& rows) const { return k(rows) + form.kv_heads * form.head_dim; }
  PagedKv paged() const { return {pages.get(), page_stride(), device_table.get()}; }
};

static __global__ void fill_rows_kernel(bf16* rows, size_t n, int width, int v_column, uint64_t seed, float qk_scale,
                                        float v_scale, bool wide) {
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < n; i += size_t{gridDim.x} * blockDim.x) {
    const bool is_v = static_cast<int>(i % width) >= v_column;
    float x = gaussian(seed, i) * (is_v ? v_scale : qk_scale);
    if (wide) x = ldexpf(x, static_cast<int>(mix_bits(seed * 77 + i) % 25) - (is_v ? 12 : 22));
    rows[i] = __float2bfloat16(x);
  }
}
static __global__ void gather_rows_kernel(bf16* to, const bf16* from, const int32_t* source, int rows, int width) {
  for (int r = blockIdx.x; r < rows; r += gridDim.x)
    for (int c = threadIdx.x; c < width; c += blockDim.x)
      to[static_cast<size_t>(r) * width + c] = from[static_cast<size_t>(source[r]) * width + c];
}
// slots: of a flat row, page · kKvPage + offset
static __global__ void fill_pages_kernel(bf16* pages, int64_t page_stride, const bf16* flat, const int32_t* slots,
                                         int rows, int heads, int kv_heads, int dim) {
  for (int r = blockIdx.x; r < rows; r += gridDim.x)
    for (int c = threadIdx.x; c < 2 * kv_heads * dim; c += blockDim.x) {
      const int64_t page = slots[r] / kKvPage, offset = slots[r] % kKvPage;
      pages[page * page_stride + (c / dim * kKvPage + offset) * dim + c % dim] =
          flat[static_cast<size_t>(r) * (heads + 2 * kv_heads) * dim + heads * dim + c];
    }
}

inline void place_pages(Batch& b, std::mt19937& random) {
  int32_t longest = 0;
  for (const auto& s : b.samples) {
    b.num_pages += (s.length + kKvPage - 1) / kKvPage;
    longest = std::max(longest, s.length);
  }
  b.num_pages += 7;
  b.table_stride = (longest + kKvPage - 1) / kKvPage;
  b.page_table.assign(b.samples.size() * b.table_stride, 0);
  std::vector<int32_t> ids(b.num_pages);
  std::iota(ids.begin(), ids.end(), 0);
  std::shuffle(ids.begin(), ids.end(), random);
  std::vector<int32_t> slots(b.flat_rows);
  size_t used = 0, leader = 0;
  for (size_t i = 0; i < b.samples.size(); ++i) {
    const Sample& s = b.samples[i];
    if (i == 0 || s.group != b.samples[i - 1].group) leader = i;
    for (int32_t page = 0; page * kKvPage < s.length; ++page) {
      const bool shared = i != leader && (page + 1) * kKvPage <= s.prompt;
      b.page_table[i * b.table_stride + page] = shared ? b.page_table[leader * b.table_stride + page] : ids[used++];
    }
    for (int32_t p = 0; p < s.length; ++p)
      slots[s.flat_row + p] = b.page_table[i * b.table_stride + p / kKvPage] * kKvPage + p % kKvPage;
  }
  b.device_table = Device<int32_t>(b.page_table);
  b.pages = Device<bf16>(b.num_pages * b.page_stride());
  b.pages.poison();
  const Device<int32_t> device_slots(slots);
  fill_pages_kernel<<<2048, 128>>>(b.pages.get(), b.page_stride(), b.flat.get(), device_slots.get(), b.flat_rows,
                                   b.form.heads, b.form.kv_heads, b.form.head_dim);
  must(cudaDeviceSynchronize());
}

inline Batch make_batch(const Case& form, uint64_t seed) {
  Batch b;
  b.form = form;
  for (size_t g = 0; g < form.groups.size(); ++g) {
    const Group& group = form.groups[g];
    const int32_t prompt_row = b.packed_rows;
    b.packed_rows += group.prompt;
    if (group.prompt > 0) b.packed_sequences.push_back({0, 0, prompt_row, group.prompt});
    for (const int32_t length : group.lengths) {
      const Sample s{static_cast<int32_t>(g), group.prompt, prompt_row, b.packed_rows, length, b.flat_rows};
      b.samples.push_back(s);
      b.packed_sequences.push_back({prompt_row, group.prompt, s.own_row, length - group.prompt});
      b.flat_sequences.push_back({0, 0, s.flat_row, length});
      for (int32_t p = 0; p < length; ++p) b.flat_to_packed.push_back(s.row_of(p));
      b.packed_rows += length - group.prompt;
      b.flat_rows += length;
    }
  }
  b.packed = Device<bf16>(static_cast<size_t>(b.packed_rows) * b.width());
  fill_rows_kernel<<<2048, 256>>>(b.packed.get(), b.packed.size(), b.width(),
                                  (form.heads + form.kv_heads) * form.head_dim, seed, form.qk_scale, form.v_scale,
                                  form.wide);
  b.flat = Device<bf16>(static_cast<size_t>(b.flat_rows) * b.width());
  const Device<int32_t> source(b.flat_to_packed);
  gather_rows_kernel<<<2048, 256>>>(b.flat.get(), b.packed.get(), source.get(), b.flat_rows, b.width());
  must(cudaDeviceSynchronize());
  std::mt19937 random(static_cast<uint32_t>(seed));
  place_pages(b, random);
  return b;
}

struct Result {
  Device<bf16> out;
  Device<float> logsumexp;
  Result(int64_t rows, const Case& form) : out(rows * form.heads * form.head_dim), logsumexp(rows * form.heads) {
    out.poison();
    logsumexp.poison();
  }
};

struct PackedInput {  // the packed or the flat rows of a batch with their plan, on the device
  const Batch& batch;
  const Device<bf16>& rows;
  int32_t num_rows;
  PackedPlan plan;
  Device<PackedSequence> sequences;
  Device<QueryTile> query_tiles, key_runs;
  Device<KeyTile> key_tiles;
  PackedInput(const Batch& b, bool flat)
      : batch(b),
        rows(flat ? b.flat : b.packed),
        num_rows(flat ? b.flat_rows : b.packed_rows),
        plan(plan_packed(flat ? b.flat_sequences : b.packed_sequences, b.head_group())),
        sequences(flat ? b.flat_sequences : b.packed_sequences),
        query_tiles(plan.query_tiles),
        key_runs(plan.key_runs),
        key_tiles(plan.key_tiles) {}
  PackedAttention forward(const Result& to) const {
    return {batch.shape(),   rows.get(),        batch.k(rows),
            batch.v(rows),   batch.width(),     batch.width(),
            sequences.get(), query_tiles.get(), static_cast<int32_t>(plan.query_tiles.size()),
            to.out.get(),    to.logsumexp.get()};
  }
};

struct Gradients {
  Device<bf16> dq, dk, dv;
  Gradients(int64_t rows, const Case& form)
      : dq(rows * form.heads * form.head_dim),
        dk(rows * form.kv_heads * form.head_dim),
        dv(rows * form.kv_heads * form.head_dim) {
    dq.poison(), dk.poison(), dv.poison();
  }
};

inline PackedAttentionBackward backward_args(const PackedInput& in, const Result& forward, const Device<bf16>& dout,
                                             const Device<char>& workspace, const Gradients& to) {
  const Batch& b = in.batch;
  PackedAttentionBackward a{};
  a.shape = b.shape();
  a.q_THD = in.rows.get(), a.k_TKD = b.k(in.rows), a.v_TKD = b.v(in.rows);
  a.out_THD = forward.out.get(), a.dout_THD = dout.get(), a.logsumexp_TH = forward.logsumexp.get();
  a.q_stride = a.kv_stride = b.width(), a.rows = in.num_rows;
  a.sequences = in.sequences.get(), a.query_tiles = in.query_tiles.get();
  a.key_tiles = in.key_tiles.get(), a.key_runs = in.key_runs.get();
  a.num_query_tiles = static_cast<int32_t>(in.plan.query_tiles.size());
  a.num_key_tiles = static_cast<int32_t>(in.plan.key_tiles.size());
  a.workspace = workspace.get();
  a.dq_THD = to.dq.get(), a.dk_TKD = to.dk.get(), a.dv_TKD = to.dv.get();
  a.dq_stride = int64_t{b.form.heads} * b.form.head_dim;
  a.dkv_stride = int64_t{b.form.kv_heads} * b.form.head_dim;
  return a;
}

// Queries of a decode step: (sample, number of keys it sees).
struct DecodeInput {
  const Batch& batch;
  std::vector<DecodeSequence> sequences;
  int32_t max_items, max_sequences;
  DecodeSizes sizes;
  Device<bf16> q;
  Device<DecodeItem> items;
  Device<DecodeMember> members;
  Device<SlotRange> slots;
  Device<DecodeCounts> counts;
  Device<char> workspace;

  // `spare`: capacity beyond what is used, as in a captured graph.
  DecodeInput(const Batch& b, const std::vector<std::pair<int32_t, int32_t>>& queries, bool share, int32_t spare)
      : batch(b) {
    int64_t keys = 0;
    std::vector<int32_t> rows;
    for (const auto& [sample, seen] : queries) {
      const Sample& s = b.samples[sample];
      sequences.push_back({sample * b.table_stride, seen, share ? s.group : -1});
      rows.push_back(s.flat_row + seen - 1);
      keys += seen;
    }
    const auto most = decode_capacity(static_cast<int64_t>(queries.size()), keys);
    std::vector<DecodeItem> host_items(most.items + spare);
    std::vector<DecodeMember> host_members(most.members + spare);
    std::vector<SlotRange> host_slots(queries.size() + spare);
    sizes = plan_decode(sequences, b.page_table, b.head_group(), {host_items, host_members, host_slots});
    max_items = static_cast<int32_t>(host_items.size());
    max_sequences = static_cast<int32_t>(host_slots.size());
    items = Device<DecodeItem>(host_items);
    members = Device<DecodeMember>(host_members);
    slots = Device<SlotRange>(host_slots);
    counts = Device<DecodeCounts>(std::vector<DecodeCounts>{{sizes.items, static_cast<int32_t>(queries.size())}});
    workspace = Device<char>(decode_attention_workspace(b.shape(), sizes.slots));
    workspace.poison();
    q = Device<bf16>(queries.size() * b.width());
    const Device<int32_t> source(rows);
    gather_rows_kernel<<<2048, 256>>>(q.get(), b.flat.get(), source.get(), static_cast<int>(queries.size()), b.width());
    must(cudaDeviceSynchronize());
  }
  DecodeAttention args(const Result& to) const {
    return {batch.shape(), q.get(),   batch.width(), batch.paged(), items.get(),     members.get(), slots.get(),
            counts.get(),  max_items, max_sequences, sizes.slots,   workspace.get(), to.out.get(),  to.logsumexp.get()};
  }
};

}  // namespace tandem::cuda::test
