// What the planners of routes have in common.
#pragma once

#include "parallel/routes.h"

namespace tandem {

// A plan being made: chunks are cut, messages come in any order.
class RoutePlanner {
 public:
  // `most_bytes` of a chunk; 0: a segment is one. `only`: messages of other ranks are left out.
  RoutePlanner(const Topology& topology, std::span<const RoutePiece> pieces, size_t most_bytes, OneRank only);

  // Chunks of a piece, by segment and offset.
  const std::vector<size_t>& chunks_of(size_t piece) const { return chunks_of_[piece]; }
  size_t num_pieces() const { return plan_.pieces.size(); }
  const RoutePiece& piece(size_t p) const { return plan_.pieces[p]; }
  const RouteChunk& chunk(size_t c) const { return plan_.chunks[c]; }
  size_t most_bytes() const { return most_bytes_; }

  void send(int step, int from, int to, size_t chunk, int first = 0, int last = 0) {
    if (from != to && (!only_ || from == *only_ || to == *only_))
      plan_.messages.push_back({step, from, to, chunk, first, last});
  }
  // All chunks of a piece in one step.
  void send_piece(int step, int from, int to, size_t piece, int first = 0, int last = 0) {
    for (const size_t chunk : chunks_of_[piece]) send(step, from, to, chunk, first, last);
  }
  RoutePlan finish() &&;

 private:
  RoutePlan plan_;
  size_t most_bytes_;
  OneRank only_;
  std::vector<std::vector<size_t>> chunks_of_;
};

size_t piece_bytes(const RoutePiece& piece);
// A share of so many bytes, so that chunks fill a tree's depth and no message is greater than it may be: 64 KiB to 8
// MB.
size_t tree_chunk_bytes(size_t bytes, size_t share);

}  // namespace tandem
