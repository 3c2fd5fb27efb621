#include "parallel/collectives.h"

#include <algorithm>

namespace tandem {
namespace {

size_t count(const Communicator& group) { return static_cast<size_t>(group.size()); }
size_t own(const Communicator& group) { return static_cast<size_t>(group.rank()); }

}  // namespace

void barrier(Communicator& group, std::string_view operation) {
  if (group.size() > 1) all_gather_values(group, operation, std::byte{1});
}

void broadcast(Communicator& group, std::string_view operation, std::span<std::byte> bytes, int root) {
  if (group.size() == 1) return;
  std::vector<SendPart> sends;
  std::vector<ReceivePart> receives;
  if (group.rank() != root) receives.push_back({root, bytes});
  for (int peer = 0; group.rank() == root && peer < group.size(); ++peer)
    if (peer != root) sends.push_back({peer, bytes});
  group.exchange(operation, sends, receives);
}

std::string broadcast_text(Communicator& group, std::string_view operation, std::string text, int root) {
  uint64_t length = text.size();
  broadcast(group, operation, bytes_of(&length, 1), root);
  text.resize(length);
  broadcast(group, operation, bytes_of(text.data(), text.size()), root);
  return text;
}

void all_gather(Communicator& group, std::string_view operation, std::span<const std::span<std::byte>> parts) {
  check(parts.size() == count(group), "all_gather wants a part a rank");
  if (group.size() == 1) return;
  std::vector<SendPart> sends;
  std::vector<ReceivePart> receives;
  for (int peer = 0; peer < group.size(); ++peer) {
    if (peer == group.rank()) continue;
    sends.push_back({peer, parts[own(group)]});
    receives.push_back({peer, parts[static_cast<size_t>(peer)]});
  }
  group.exchange(operation, sends, receives);
}

std::vector<std::string> all_gather_text(Communicator& group, std::string_view operation, const std::string& mine) {
  const auto lengths = all_gather_values(group, operation, static_cast<uint64_t>(mine.size()));
  std::vector<std::string> all(count(group));
  std::vector<std::span<std::byte>> parts;
  for (size_t r = 0; r < all.size(); ++r) {
    if (r == own(group)) all[r] = mine;
    all[r].resize(lengths[r]);
    parts.push_back(bytes_of(all[r].data(), all[r].size()));
  }
  all_gather(group, operation, parts);
  return all;
}

std::vector<std::string> gather_text(Communicator& group, std::string_view operation, const std::string& mine,
                                     int root) {
  const auto lengths = all_gather_values(group, operation, static_cast<uint64_t>(mine.size()));
  if (group.rank() != root) {
    const SendPart part{root, bytes_of(mine.data(), mine.size())};
    group.exchange(operation, {&part, 1}, {});
    return {};
  }
  std::vector<std::string> all(count(group));
  std::vector<ReceivePart> receives;
  for (size_t r = 0; r < all.size(); ++r) {
    all[r].resize(lengths[r]);
    if (r == own(group)) {
      all[r] = mine;
    } else {
      receives.push_back({static_cast<int>(r), bytes_of(all[r].data(), all[r].size())});
    }
  }
  group.exchange(operation, {}, receives);
  return all;
}

void all_to_all(Communicator& group, std::string_view operation, std::span<const std::span<const std::byte>> in,
                std::span<const std::span<std::byte>> out) {
  check(in.size() == count(group) && out.size() == count(group), "all_to_all wants a part a rank");
  std::vector<SendPart> sends;
  std::vector<ReceivePart> receives;
  for (int peer = 0; peer < group.size(); ++peer) {
    sends.push_back({peer, in[static_cast<size_t>(peer)]});
    receives.push_back({peer, out[static_cast<size_t>(peer)]});
  }
  group.exchange(operation, sends, receives);
}

void add_into(std::span<float> to, std::span<const float> from) {
  check(to.size() == from.size(), "values of two lengths cannot be added");
  for (size_t i = 0; i < to.size(); ++i) to[i] += from[i];
}

void reduce_scatter(Communicator& group, std::string_view operation, std::span<const std::span<const float>> pieces,
                    std::span<float> out) {
  check(pieces.size() == count(group) && pieces[own(group)].size() == out.size(),
        "reduce_scatter wants a piece a rank");
  const size_t others = count(group) - 1, length = out.size();
  std::vector<float> received(others * length);
  std::vector<SendPart> sends;
  std::vector<ReceivePart> receives;
  std::vector<std::span<const float>> terms;  // by rank
  size_t next = 0;
  for (size_t r = 0; r < pieces.size(); ++r) {
    if (r == own(group)) {
      terms.push_back(pieces[r]);
      continue;
    }
    const std::span place(received.data() + next++ * length, length);
    terms.emplace_back(place);
    sends.push_back({static_cast<int>(r), std::as_bytes(pieces[r])});
    receives.push_back({static_cast<int>(r), std::as_writable_bytes(place)});
  }
  if (others > 0) group.exchange(operation, sends, receives);
  std::copy(terms[0].begin(), terms[0].end(), out.begin());
  for (size_t r = 1; r < terms.size(); ++r) add_into(out, terms[r]);
}

// Every rank sums a part and sends the result round: the same sums as if each had gathered everything.
void all_reduce(Communicator& group, std::string_view operation, std::span<float> values) {
  if (group.size() == 1) return;
  std::vector<std::span<float>> parts;
  for (size_t r = 0; r < count(group); ++r) {
    const size_t begin = r * values.size() / count(group), end = (r + 1) * values.size() / count(group);
    parts.push_back(values.subspan(begin, end - begin));
  }
  std::vector<float> sum(parts[own(group)].size());
  reduce_scatter(group, operation, std::vector<std::span<const float>>(parts.begin(), parts.end()), sum);
  std::copy(sum.begin(), sum.end(), parts[own(group)].begin());
  std::vector<std::span<std::byte>> bytes;
  for (const std::span<float> part : parts) bytes.push_back(std::as_writable_bytes(part));
  all_gather(group, operation, bytes);
}

void all_reduce(Communicator& group, std::string_view operation, std::span<double> values) {
  if (group.size() == 1) return;
  std::vector<double> all(count(group) * values.size());
  std::vector<std::span<std::byte>> parts;
  for (size_t r = 0; r < count(group); ++r) parts.push_back(bytes_of(all.data() + r * values.size(), values.size()));
  std::copy(values.begin(), values.end(), all.begin() + static_cast<int64_t>(own(group) * values.size()));
  all_gather(group, operation, parts);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = all[i];
    for (size_t r = 1; r < count(group); ++r) values[i] += all[r * values.size() + i];
  }
}

}  // namespace tandem
