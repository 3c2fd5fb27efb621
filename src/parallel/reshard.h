// From one layout to another: which rank sends which rectangle of which parameter to whom. What a rank already holds is
// copied in place, everything else it needs arrives exactly once, so the bytes that cross are the least possible for
// the two placements: Σ over ranks of (what it must hold − what it holds already). docs/reshard.md has the formulas.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "parallel/communicator.h"
#include "parallel/placement.h"

namespace tandem {

// A rectangle in a rank's memory of a parameter. In elements.
struct StridedBox {
  int64_t offset = 0, stride = 0, rows = 0, cols = 0;
  int64_t elements() const { return rows * cols; }
  bool contiguous() const { return rows == 1 || cols == stride; }
};

struct Move {
  size_t parameter;
  int peer;             // of a send the receiver, of a receive the sender, of a copy this rank
  StridedBox from, to;  // in the sender's memory and in the receiver's
};

// One rank's part, ordered by parameter.
struct RankMoves {
  std::vector<Move> copies, sends, receives;
};

struct ReshardPlan {
  Layout from, to;
  std::vector<int> roles;  // the rank of `to`'s mesh that each rank plays
  std::vector<RankMoves> ranks;
  std::vector<size_t> ends;  // parameters before ends[i], from ends[i - 1] on, are moved in one exchange

  int64_t moved_elements() const;  // by all ranks together
  int64_t most_received() const;   // elements, by one rank
};

// The roles in which ranks find most of what they need in their own memory (an assignment of greatest overlap). For
// Megatron layouts this is HybridFlow's grouping (Sheng et al. 2024, arXiv:2409.19256, section 5.3): the ranks whose
// training shards make up a generation shard all play it.
std::vector<int> choose_roles(const ParameterList& list, const Layout& from, const Layout& to);

// Both layouts have the same number of ranks. Every rank makes the same plan.
ReshardPlan plan_reshard(const ParameterList& list, const Layout& from, const Layout& to);

// A rank's memory of a parameter under the old and the new layout; called only for what the rank holds.
struct ReshardMemory {
  size_t element_bytes = 4;
  std::function<std::byte*(size_t parameter)> from, to;
  std::function<void(size_t parameter)> finished;  // this parameter is through; may be empty
  // Room beside them, until the next call, where they lie on a device; empty: the host's.
  std::function<std::byte*(size_t bytes)> staging;
};

struct ReshardResult {
  int64_t bytes_received = 0, bytes_sent = 0, bytes_copied = 0;
  int64_t peak_staging_bytes = 0;  // beside old and new memory
};

// Block by block, so that little is in flight at once; a block in parts where a rank would need more room beside it
// than the largest block. All ranks call it together.
ReshardResult reshard(Communicator& group, const ReshardPlan& plan, const ReshardMemory& memory);

// For comparison, in elements received by all ranks together, of a model of `elements`. HybridFlow's: each rank turns
// its 1/s of the model (s = pp · tp · dp_shard) into its 1/g by gathering the other parts of it. A naive gather brings
// the whole model to every rank.
double hybridflow_elements(int64_t elements, const Layout& from, const Layout& to);
double naive_gather_elements(int64_t elements, const Layout& from);

}  // namespace tandem
