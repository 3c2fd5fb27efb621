#include "parallel/communicator.h"

#include <fmt/format.h>

#include <cstring>
#include <numeric>

namespace tandem {
namespace {

// Parts of a rank to itself, paired in their order.
void copy_own(const Communicator& group, std::span<const SendPart> sends, std::span<const ReceivePart> receives) {
  const int rank = group.rank();
  size_t next = 0;
  for (const ReceivePart& to : receives) {
    if (to.peer != rank || to.bytes.empty()) continue;
    while (next < sends.size() && (sends[next].peer != rank || sends[next].bytes.empty())) ++next;
    check(next < sends.size() && sends[next].bytes.size() == to.bytes.size(), "a rank's parts to itself do not pair");
    const size_t size = to.bytes.size();
    if (const std::byte* from = sends[next++].bytes.data(); from != to.bytes.data())
      group.copy_rows(to.bytes.data(), size, from, size, size, 1);
  }
}

template <class Part>
std::vector<Part> between_ranks(int rank, int size, std::span<const Part> parts, int64_t& bytes) {
  std::vector<Part> out;
  for (const Part& part : parts) {
    check(part.peer >= 0 && part.peer < size, "a peer outside the group");
    if (part.peer == rank || part.bytes.empty()) continue;
    bytes += static_cast<int64_t>(part.bytes.size());
    out.push_back(part);
  }
  return out;
}

template <class Part>
int64_t total_bytes(const std::vector<Part>& parts) {
  int64_t bytes = 0;
  for (const Part& part : parts) bytes += static_cast<int64_t>(part.bytes.size());
  return bytes;
}

}  // namespace

void Communicator::exchange(std::string_view operation, std::span<const SendPart> sends,
                            std::span<const ReceivePart> receives) {
  copy_own(*this, sends, receives);
  if (size_ == 1) return;
  const auto out = between_ranks(rank_, size_, sends, traffic_.bytes_sent);
  const auto in = between_ranks(rank_, size_, receives, traffic_.bytes_received);
  ++traffic_.calls;
  const InFlight::Scope shown(in_flight_.get(), operation);
  if (!observer_) return transfer(operation, out, in);
  const auto begin = std::chrono::steady_clock::now();
  transfer(operation, out, in);
  (*observer_)({operation, begin, std::chrono::steady_clock::now(), total_bytes(out), total_bytes(in)});
}

std::unique_ptr<Communicator> Communicator::split(std::span<const int> ranks) {
  std::unique_ptr<Communicator> part = make_part(ranks);
  part->observer_ = observer_;
  part->in_flight_ = in_flight_;
  return part;
}

std::unique_ptr<Communicator> Communicator::duplicate() {
  std::vector<int> all(static_cast<size_t>(size_));
  std::iota(all.begin(), all.end(), 0);
  return split(all);
}

void Communicator::copy_rows(std::byte* to, size_t to_pitch, const std::byte* from, size_t from_pitch, size_t width,
                             size_t height) const {
  for (size_t row = 0; row < height; ++row) std::memmove(to + row * to_pitch, from + row * from_pitch, width);
}

void Communicator::fail(std::string_view operation, int peer, std::string_view why) const {
  throw CommunicationError(fmt::format("rank {} of {}, {}: rank {} {}", rank_, size_, operation, peer, why));
}

}  // namespace tandem
