// What the GPU's attention kernels are given to do, and how a batch becomes that. Torch-free and CUDA-free.
//
// Keys are cut at absolute multiples of kChunk: a chunk's softmax and its product with the values are computed from
// zero, and chunks are merged in ascending order by one formula, whoever does it. That is why every path gives a row
// the same bits. Positions and keys count from 0 within a sequence; rows count over the batch.
// Errors: a plan that does not fit its arrays, or sequences that contradict each other, are internal errors.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tandem::cuda {

constexpr int32_t kChunk = 128;
constexpr int32_t kKvPage = 16;       // keys of a page of the paged cache
constexpr int32_t kDecodeRows = 16;   // query rows (sequences × heads of one KV group) of a decode item
constexpr int32_t kMaxHeadGroup = 8;  // query heads per KV head, at most

constexpr int32_t num_chunks(int32_t keys) { return (keys + kChunk - 1) / kChunk; }

// ---- Decode: one query a sequence. Row i of q and out is sequence i.

// Up to kDecodeRows query rows against one chunk of keys.
struct alignas(16) DecodeItem {
  int32_t first_member;
  int32_t num_members;  // sequences that read these very pages
  int32_t keys;         // 1 … kChunk
  int32_t first_page;   // index into the page table of the chunk's first page
};
struct alignas(8) DecodeMember {
  int32_t sequence;
  int32_t slot;  // where the partial result of (sequence, chunk) goes
};
struct alignas(8) SlotRange {  // a sequence's partial results, in ascending chunks
  int32_t first;
  int32_t count;
};
// Read by the kernels from device memory, so that a captured graph serves any batch up to its capacity.
struct DecodeCounts {
  int32_t items;
  int32_t sequences;
};

struct DecodeSequence {
  int32_t first_page;  // index into the page table of the page of position 0
  int32_t keys;        // at least 1: the query's own key included
  int32_t group;       // sequences of one group may share leading pages; below 0: none
};
// What the arrays below hold, at most, for `sequences` sequences of `keys` keys in sum.
struct DecodeSizes {
  int32_t items;
  int32_t members;
  int32_t slots;
};
DecodeSizes decode_capacity(int64_t sequences, int64_t keys);

// Filled in place: the arrays may be pinned memory that a graph copies from.
struct DecodeArrays {
  std::span<DecodeItem> items;
  std::span<DecodeMember> members;
  std::span<SlotRange> slots;  // one a sequence
};
// Sequences of a group read a chunk together where it is whole for them and its pages are the same ones; whole shared
// chunks come first, unfinished ones last. `head_group` is query heads per KV head.
DecodeSizes plan_decode(std::span<const DecodeSequence> sequences, std::span<const int32_t> page_table,
                        int32_t head_group, const DecodeArrays& arrays);

// ---- Prefill and training: runs of query rows of one sequence.

// Rows one thread block takes: two heads of a KV group at 64 positions where heads pair up, else 128 of one head.
constexpr int32_t query_tile_rows(int32_t head_group) { return head_group % 2 == 0 ? 64 : 128; }

struct alignas(16) QueryTile {
  int32_t row;    // first query row
  int32_t count;  // at least 1
  int32_t pos;    // absolute position of the first row; it sees keys 0 … pos
  int32_t kv;     // paged: index into the page table of the page of position 0; packed: which PackedSequence
};
// Cuts runs (tiles of any length) into tiles of `query_tile_rows(head_group)`, long sequences and late rows first.
std::vector<QueryTile> plan_query_tiles(std::span<const QueryTile> runs, int32_t head_group);

// Where a packed sequence's rows are. Its first `prefix_len` positions are the rows of another sequence of the batch,
// whole: a prompt that several samples share.
struct alignas(16) PackedSequence {
  int32_t prefix_row;
  int32_t prefix_len;  // 0: no prefix
  int32_t own_row;
  int32_t own_len;  // at least 1
};
// Keys whose gradients one thread block computes, and the runs of query rows that may see them, in the order of
// summing.
struct alignas(8) KeyTile {
  int32_t row;
  int32_t count;  // 1 … kChunk
  int32_t pos;    // absolute position of the first key
  int32_t sequence;
  int32_t first_run;
  int32_t num_runs;
};
struct PackedPlan {
  std::vector<QueryTile> query_tiles;  // forward, and dq
  std::vector<KeyTile> key_tiles;      // dk and dv
  std::vector<QueryTile> key_runs;
};
PackedPlan plan_packed(std::span<const PackedSequence> sequences, int32_t head_group);

}  // namespace tandem::cuda
