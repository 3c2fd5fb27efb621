// Which part of every parameter a rank holds. An architecture lists its parameters once, with how tensor parallelism
// cuts them (model/placements.h); FSDP, resharding and sharded checkpoints all plan from that list and a Layout.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parallel/mesh.h"

namespace tandem {

// How a tensor lies along the tp axis. A cut dim falls into `pieces` pieces (piece i ends at (i + 1) · size / pieces),
// never cut further, and rank t of T has the pieces from t · pieces / T on.
struct Placement {
  enum class Kind { kReplicate, kShard, kPartial } kind = Kind::kReplicate;  // partial: the sum over ranks is meant
  int dim = 0;
  int64_t pieces = 1;

  static Placement replicate() { return {}; }
  static Placement shard(int dim, int64_t pieces) { return {Kind::kShard, dim, pieces}; }
  static Placement partial() { return {Kind::kPartial}; }
};

// A tensor as checkpoints name it; of one dim: cols is 1.
struct PlacedTensor {
  std::string name;
  int64_t rows = 0, cols = 1;
  Placement tp;
};

// What lies in memory as one: tensors stacked by rows.
struct PlacedParameter {
  std::string name;
  int64_t block = 0;          // of the decoder; −1: before the first block, num_blocks: after the last
  bool on_both_ends = false;  // a tied embedding: used before the first block and after the last
  std::vector<PlacedTensor> tensors;
};

struct ParameterList {
  int64_t num_blocks = 0;
  std::vector<PlacedParameter> parameters;

  int64_t num_elements() const;
  int64_t largest_block()
      const;  // elements of the greatest block, or of what stands outside the blocks if that is more
};

struct Range {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
  bool empty() const { return end <= begin; }
  bool operator==(const Range&) const = default;
};

// Piece arithmetic of Placement: what rank `index` of `count` has of a dim of `size`.
Range sharded_range(int64_t size, int64_t pieces, int index, int count);
// Blocks of one of a pipeline's pieces: [begin, end). Piece i belongs to stage i mod pp; without chunks it is the
// stage.
Range stage_blocks(int64_t num_blocks, int piece, int pieces);
// All blocks of a stage, ascending.
std::vector<int64_t> blocks_of_stage(int64_t num_blocks, int stage, const Layout& layout);

// FSDP cuts a parameter's memory, as tp left it, at multiples of kFlatBlock elements, so that sums over such blocks
// (the gradient's norm) are one rank's each. `order`, the parameter's place in the list, turns the ranks, so that small
// parameters do not all fall to one.
inline constexpr int64_t kFlatBlock = 4096;
Range flat_shard(int64_t elements, size_t order, int index, int count);

// A rectangle of a tensor, and where it lies in the rank's memory of its parameter: row by row without gaps.
struct Box {
  Range rows, cols;
  int64_t elements() const { return rows.size() * cols.size(); }
  bool empty() const { return rows.empty() || cols.empty(); }
};
struct Held {
  size_t parameter, tensor;
  Box box;
  int64_t offset;  // elements
};

bool holds(const ParameterList& list, const PlacedParameter& parameter, const Layout& layout, int rank);
// Elements of a parameter that a rank keeps.
int64_t held_elements(const ParameterList& list, size_t parameter, const Layout& layout, int rank);
std::vector<Held> holdings(const ParameterList& list, const Layout& layout, int rank);

}  // namespace tandem
