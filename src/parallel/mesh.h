// Ranks as points of a mesh. Rank 0, 1, ... run through tp first (neighbours, on the quickest links), then cp,
// dp_shard, dp_replicate, and pp last.
#pragma once

#include <array>
#include <span>
#include <string>
#include <vector>

namespace tandem {

enum class Axis { kPp, kDpReplicate, kDpShard, kCp, kTp };
inline constexpr size_t kNumAxes = 5;

struct Layout {
  int pp = 1;            // stages of consecutive blocks
  int dp_replicate = 1;  // copies of what dp_shard splits
  int dp_shard = 1;      // FSDP: each rank keeps a part of every parameter and gathers it when it is used
  int cp = 1;            // a sequence over several ranks, which keep parts of parameters as dp_shard's do
  int tp = 1;            // every product over several ranks
  int chunks = 1;        // of consecutive blocks that each stage has, dealt out in turn (interleaved)

  int world() const { return pp * dp_replicate * dp_shard * cp * tp; }
  int size(Axis axis) const;
  bool operator==(const Layout&) const = default;
};

using Coordinates = std::array<int, kNumAxes>;  // by Axis

Coordinates coordinates(const Layout& layout, int rank);
int rank_at(const Layout& layout, const Coordinates& at);
inline int at(const Coordinates& c, Axis axis) { return c[static_cast<size_t>(axis)]; }

// The ranks, ascending, that differ from `rank` along these axes only; it is among them.
std::vector<int> ranks_along(const Layout& layout, int rank, std::span<const Axis> axes);

// "tp2 pp2", "fsdp4", "hybrid2x2", "single".
std::string layout_name(const Layout& layout);

}  // namespace tandem
