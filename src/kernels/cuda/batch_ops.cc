#include "kernels/cuda/batch.h"
#include "kernels/cuda/device_table.h"
#include "kernels/cuda/torch_args.h"
#include "kernels/id_groups.h"

namespace tandem::cuda {
namespace {

using kernels::QuerySpan;
using kernels::TokenBatch;

// Where a batch's arrays stand in the upload, until its address is known.
struct Offsets {
  size_t ids, positions, slots, pages, items, members, ranges, counts, tiles;
  size_t sequences, key_tiles, key_runs, group_ids, group_starts, group_order;
};

void plan_paged(const TokenBatch& tokens, int32_t head_group, Upload& upload, Offsets& at, Batch& out) {
  const auto& spans = tokens.attention.spans;
  const auto& pages = tokens.attention.block_tables;
  std::vector<DecodeSequence> decode;
  int64_t keys = 0;
  size_t s = 0;
  for (; s < spans.size() && spans[s].num_tokens == 1 && spans[s].first_token == static_cast<int32_t>(s); ++s) {
    // Sequences with the same first page have the same prompt, or its beginning.
    decode.push_back({spans[s].first_block, spans[s].first_position + 1, pages[spans[s].first_block]});
    keys += decode.back().keys;
  }
  out.num_decode = static_cast<int32_t>(decode.size());
  const DecodeSizes capacity = decode_capacity(out.num_decode, keys);
  std::vector<DecodeItem> items(static_cast<size_t>(capacity.items));
  std::vector<DecodeMember> members(static_cast<size_t>(capacity.members));
  std::vector<SlotRange> ranges(decode.size());
  out.decode = plan_decode(decode, pages, head_group, {items, members, ranges});
  std::vector<QueryTile> runs;
  for (; s < spans.size(); ++s)
    runs.push_back({spans[s].first_token, spans[s].num_tokens, spans[s].first_position, spans[s].first_block});
  const std::vector<QueryTile> tiles = plan_query_tiles(runs, head_group);
  out.num_tiles = static_cast<int32_t>(tiles.size());

  std::vector<int32_t> slots;
  for (size_t i = 0; i < tokens.writes.size(); ++i) {
    check(tokens.writes[i].token == static_cast<int32_t>(i), "a paged batch writes its tokens in order");
    slots.push_back(tokens.writes[i].slot);
  }
  items.resize(static_cast<size_t>(out.decode.items));
  members.resize(static_cast<size_t>(out.decode.members));
  const DecodeCounts counts{out.decode.items, out.num_decode};
  at.slots = upload.add(slots);
  at.pages = upload.add(pages);
  at.items = upload.add(items);
  at.members = upload.add(members);
  at.ranges = upload.add(ranges);
  at.counts = upload.add(std::span<const DecodeCounts>(&counts, 1));
  at.tiles = upload.add(tiles);
}

void plan_training(const TokenBatch& tokens, int32_t head_group, Upload& upload, Offsets& at, Batch& out) {
  std::vector<PackedSequence> sequences;
  for (const QuerySpan& span : tokens.attention.spans)
    sequences.push_back({span.prefix_token, span.first_position, span.first_token, span.num_tokens});
  const PackedPlan plan = plan_packed(sequences, head_group);
  out.num_tiles = static_cast<int32_t>(plan.query_tiles.size());
  out.num_key_tiles = static_cast<int32_t>(plan.key_tiles.size());
  at.sequences = upload.add(sequences);
  at.tiles = upload.add(plan.query_tiles);
  at.key_tiles = upload.add(plan.key_tiles);
  at.key_runs = upload.add(plan.key_runs);
  const kernels::IdGroups groups = kernels::group_ids(tokens.ids);
  out.id_groups.groups = static_cast<int64_t>(groups.ids.size());
  at.group_ids = upload.add(groups.ids);
  at.group_starts = upload.add(groups.starts);
  at.group_order = upload.add(groups.order);
}

}  // namespace

PlacedBatch place(const TokenBatch& tokens, kernels::KeyLayout layout, const kernels::HeadShape& heads,
                  const at::Tensor&) {
  auto out = std::make_shared<Batch>();
  Upload upload;
  Offsets at{};
  at.ids = upload.add(tokens.ids);
  at.positions = upload.add(tokens.positions);
  const auto head_group = static_cast<int32_t>(heads.num_heads / heads.num_kv_heads);
  const bool paged = layout == kernels::KeyLayout::kPaged;
  if (paged) {
    plan_paged(tokens, head_group, upload, at, *out);
  } else {
    plan_training(tokens, head_group, upload, at, *out);
  }
  const at::Tensor& buffer = out->buffer = upload.send();
  out->ids = at_offset<int32_t>(buffer, at.ids);
  out->positions = at_offset<int32_t>(buffer, at.positions);
  out->tiles = at_offset<QueryTile>(buffer, at.tiles);
  if (paged) {
    out->slots = at_offset<int32_t>(buffer, at.slots);
    out->page_table = at_offset<int32_t>(buffer, at.pages);
    out->decode_items = at_offset<DecodeItem>(buffer, at.items);
    out->decode_members = at_offset<DecodeMember>(buffer, at.members);
    out->decode_slots = at_offset<SlotRange>(buffer, at.ranges);
    out->decode_counts = at_offset<DecodeCounts>(buffer, at.counts);
  } else {
    out->sequences = at_offset<PackedSequence>(buffer, at.sequences);
    out->key_tiles = at_offset<KeyTile>(buffer, at.key_tiles);
    out->key_runs = at_offset<QueryTile>(buffer, at.key_runs);
    out->id_groups.ids_G = at_offset<int32_t>(buffer, at.group_ids);
    out->id_groups.starts_G = at_offset<int32_t>(buffer, at.group_starts);
    out->id_groups.order_T = at_offset<int32_t>(buffer, at.group_order);
  }
  return {tokens, layout, std::move(out)};
}

}  // namespace tandem::cuda
