#include "parallel/mesh.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace tandem {

int Layout::size(Axis axis) const {
  switch (axis) {
    case Axis::kPp:
      return pp;
    case Axis::kDpReplicate:
      return dp_replicate;
    case Axis::kDpShard:
      return dp_shard;
    case Axis::kCp:
      return cp;
    case Axis::kTp:
      return tp;
  }
  return 1;
}

Coordinates coordinates(const Layout& layout, int rank) {
  check(rank >= 0 && rank < layout.world(), "a rank outside the mesh");
  Coordinates at{};
  for (size_t axis = kNumAxes; axis-- > 0;) {
    const int size = layout.size(static_cast<Axis>(axis));
    at[axis] = rank % size;
    rank /= size;
  }
  return at;
}

int rank_at(const Layout& layout, const Coordinates& at) {
  int rank = 0;
  for (size_t axis = 0; axis < kNumAxes; ++axis) rank = rank * layout.size(static_cast<Axis>(axis)) + at[axis];
  return rank;
}

std::vector<int> ranks_along(const Layout& layout, int rank, std::span<const Axis> axes) {
  std::vector<Coordinates> points{coordinates(layout, rank)};
  for (const Axis axis : axes) {
    std::vector<Coordinates> more;
    for (Coordinates point : points)
      for (int i = 0; i < layout.size(axis); ++i) {
        point[static_cast<size_t>(axis)] = i;
        more.push_back(point);
      }
    points = std::move(more);
  }
  std::vector<int> ranks;
  for (const Coordinates& point : points) ranks.push_back(rank_at(layout, point));
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

std::string layout_name(const Layout& layout) {
  std::string name;
  const auto add = [&](const std::string& word) { name += (name.empty() ? "" : " ") + word; };
  if (layout.tp > 1) add(fmt::format("tp{}", layout.tp));
  if (layout.cp > 1) add(fmt::format("cp{}", layout.cp));
  if (layout.pp > 1)
    add(layout.chunks > 1 ? fmt::format("pp{}v{}", layout.pp, layout.chunks) : fmt::format("pp{}", layout.pp));
  if (layout.dp_shard > 1 && layout.dp_replicate > 1) {
    add(fmt::format("hybrid{}x{}", layout.dp_replicate, layout.dp_shard));
  } else if (layout.dp_shard > 1) {
    add(fmt::format("fsdp{}", layout.dp_shard));
  } else if (layout.dp_replicate > 1) {
    add(fmt::format("dp{}", layout.dp_replicate));
  }
  return name.empty() ? "single" : name;
}

}  // namespace tandem
