#include "parallel/placement.h"

#include <algorithm>

#include "base/error.h"

namespace tandem {
namespace {

// What tp leaves of a tensor on one rank.
Box tp_box(const PlacedTensor& tensor, int index, int count) {
  Box box{{0, tensor.rows}, {0, tensor.cols}};
  if (tensor.tp.kind == Placement::Kind::kShard) {
    Range& cut = tensor.tp.dim == 0 ? box.rows : box.cols;
    cut = sharded_range(cut.end, tensor.tp.pieces, index, count);
  }
  return box;
}

// The part of `box`, row by row, with flat indices in [begin, end): at most a piece of a row, whole rows, a piece.
std::vector<std::pair<Box, int64_t>> flat_part(const Box& box, int64_t begin, int64_t end) {
  std::vector<std::pair<Box, int64_t>> parts;  // and their flat index
  const int64_t width = box.cols.size();
  while (begin < end) {
    const int64_t row = begin / width, col = begin % width;
    const int64_t rows = col == 0 ? (end - begin) / width : 0;
    if (rows > 0) {
      parts.push_back({{{box.rows.begin + row, box.rows.begin + row + rows}, box.cols}, begin});
      begin += rows * width;
      continue;
    }
    const int64_t cols = std::min(width - col, end - begin);
    parts.push_back(
        {{{box.rows.begin + row, box.rows.begin + row + 1}, {box.cols.begin + col, box.cols.begin + col + cols}},
         begin});
    begin += cols;
  }
  return parts;
}

}  // namespace

int64_t ParameterList::num_elements() const {
  int64_t total = 0;
  for (const PlacedParameter& parameter : parameters)
    for (const PlacedTensor& tensor : parameter.tensors) total += tensor.rows * tensor.cols;
  return total;
}

int64_t ParameterList::largest_block() const {
  std::vector<int64_t> sizes(static_cast<size_t>(num_blocks) + 2);
  for (const PlacedParameter& parameter : parameters)
    for (const PlacedTensor& tensor : parameter.tensors) sizes[parameter.block + 1] += tensor.rows * tensor.cols;
  return *std::max_element(sizes.begin(), sizes.end());
}

Range sharded_range(int64_t size, int64_t pieces, int index, int count) {
  check(pieces >= count, "a dim of fewer pieces than ranks");
  const auto piece_end = [&](int64_t piece) { return piece * size / pieces; };
  return {piece_end(index * pieces / count), piece_end((index + 1) * pieces / count)};
}

Range stage_blocks(int64_t num_blocks, int piece, int pieces) {
  return {piece * num_blocks / pieces, (piece + 1) * num_blocks / pieces};
}

std::vector<int64_t> blocks_of_stage(int64_t num_blocks, int stage, const Layout& layout) {
  std::vector<int64_t> blocks;
  for (int piece = stage; piece < layout.pp * layout.chunks; piece += layout.pp) {
    const Range some = stage_blocks(num_blocks, piece, layout.pp * layout.chunks);
    for (int64_t block = some.begin; block < some.end; ++block) blocks.push_back(block);
  }
  return blocks;
}

Range flat_shard(int64_t elements, size_t order, int index, int count) {
  const int64_t blocks = (elements + kFlatBlock - 1) / kFlatBlock;
  const auto slot = static_cast<int64_t>((static_cast<size_t>(index) + order) % static_cast<size_t>(count));
  return {std::min(elements, slot * blocks / count * kFlatBlock),
          std::min(elements, (slot + 1) * blocks / count * kFlatBlock)};
}

bool holds(const ParameterList& list, const PlacedParameter& parameter, const Layout& layout, int rank) {
  const int stage = at(coordinates(layout, rank), Axis::kPp);
  const bool first = stage == 0, last = stage == layout.pp - 1;
  if (parameter.on_both_ends) return first || last;
  if (parameter.block < 0) return first;
  if (parameter.block >= list.num_blocks) return last;
  const std::vector<int64_t> blocks = blocks_of_stage(list.num_blocks, stage, layout);
  return std::ranges::binary_search(blocks, parameter.block);
}

std::vector<Held> holdings(const ParameterList& list, const Layout& layout, int rank) {
  const Coordinates c = coordinates(layout, rank);
  std::vector<Held> all;
  for (size_t p = 0; p < list.parameters.size(); ++p) {
    const PlacedParameter& parameter = list.parameters[p];
    if (!holds(list, parameter, layout, rank)) continue;
    std::vector<Box> boxes;
    int64_t size = 0;
    for (const PlacedTensor& tensor : parameter.tensors) {
      boxes.push_back(tp_box(tensor, at(c, Axis::kTp), layout.tp));
      size += boxes.back().elements();
    }
    const int parts = layout.dp_shard * layout.cp;  // cp cuts sequences: its ranks train the same parameters
    const Range kept =
        parts == 1 ? Range{0, size} : flat_shard(size, p, at(c, Axis::kDpShard) * layout.cp + at(c, Axis::kCp), parts);
    int64_t start = 0;  // of the tensor in the parameter's memory as tp left it
    for (size_t t = 0; t < boxes.size(); ++t) {
      const int64_t length = boxes[t].elements();
      const int64_t begin = std::max(kept.begin - start, int64_t{0}), end = std::min(kept.end - start, length);
      if (begin < end)
        for (const auto& [box, flat] : flat_part(boxes[t], begin, end))
          all.push_back({p, t, box, start + flat - kept.begin});
      start += length;
    }
  }
  return all;
}

int64_t held_elements(const ParameterList& list, size_t parameter, const Layout& layout, int rank) {
  int64_t total = 0;
  for (const Held& held : holdings(list, layout, rank))
    if (held.parameter == parameter) total += held.box.elements();
  return total;
}

}  // namespace tandem
