// Collectives over Communicator::exchange. Sums run in rank order, ((r0 + r1) + r2) + ..., whoever adds them up, so
// their bits depend neither on sizes nor on how ranks are connected. Every rank of the group calls the same function
// with matching arguments; `operation` names it in errors. In a group of one they move and count nothing.
#pragma once

#include <string>
#include <vector>

#include "parallel/communicator.h"

namespace tandem {

void barrier(Communicator& group, std::string_view operation);

// The root's bytes to all.
void broadcast(Communicator& group, std::string_view operation, std::span<std::byte> bytes, int root);
std::string broadcast_text(Communicator& group, std::string_view operation, std::string text, int root);

// parts[r] receives rank r's bytes; parts[own rank] holds this rank's.
void all_gather(Communicator& group, std::string_view operation, std::span<const std::span<std::byte>> parts);
// Of any lengths.
std::vector<std::string> all_gather_text(Communicator& group, std::string_view operation, const std::string& mine);
// To the root only; elsewhere the result is empty.
std::vector<std::string> gather_text(Communicator& group, std::string_view operation, const std::string& mine,
                                     int root);

template <class T>
std::vector<T> all_gather_values(Communicator& group, std::string_view operation, const T& mine) {
  std::vector<T> all(static_cast<size_t>(group.size()));
  all[static_cast<size_t>(group.rank())] = mine;
  std::vector<std::span<std::byte>> parts;
  for (T& value : all) parts.push_back(bytes_of(&value, 1));
  all_gather(group, operation, parts);
  return all;
}

// What each rank has for each other: out[r] came from rank r's in[own rank].
void all_to_all(Communicator& group, std::string_view operation, std::span<const std::span<const std::byte>> in,
                std::span<const std::span<std::byte>> out);

// pieces[r] is this rank's contribution to what rank r keeps; `out`, of the length of pieces[own rank], becomes the sum
// of everyone's. `out` must not overlap the pieces.
void reduce_scatter(Communicator& group, std::string_view operation, std::span<const std::span<const float>> pieces,
                    std::span<float> out);
// `values` becomes the sum everywhere.
void all_reduce(Communicator& group, std::string_view operation, std::span<float> values);
void all_reduce(Communicator& group, std::string_view operation, std::span<double> values);

// to += from, the only way in which ranks' values are added up.
void add_into(std::span<float> to, std::span<const float> from);

}  // namespace tandem
