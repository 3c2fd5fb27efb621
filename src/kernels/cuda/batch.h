// A batch in the device's memory, as the attention and row kernels want it.
#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/cuda/attention_plan.h"
#include "kernels/cuda/embedding.h"
#include "kernels/token_batch.h"

namespace tandem::cuda {

struct Batch : kernels::DeviceBatch {
  at::Tensor buffer;  // everything below points into it
  const int32_t *ids, *positions;
  const int32_t *slots = nullptr, *page_table = nullptr;  // paged
  // Paged: rows [0, num_decode) ask one query a sequence, the others come in tiles.
  int32_t num_decode = 0;
  DecodeSizes decode{};
  const DecodeItem* decode_items = nullptr;
  const DecodeMember* decode_members = nullptr;
  const SlotRange* decode_slots = nullptr;
  const DecodeCounts* decode_counts = nullptr;
  const QueryTile* tiles = nullptr;
  int32_t num_tiles = 0;
  // Packed.
  const PackedSequence* sequences = nullptr;
  const KeyTile* key_tiles = nullptr;
  const QueryTile* key_runs = nullptr;
  int32_t num_key_tiles = 0;
  IdGroupsOnDevice id_groups{};
};

inline const Batch& on_gpu(const kernels::PlacedBatch& batch) { return static_cast<const Batch&>(*batch.device); }

}  // namespace tandem::cuda
