#include "parallel/communicator.h"

#include <fmt/format.h>

#include <cstring>
#include <numeric>

namespace tandem {
namespace {

// Parts of a rank to itself, paired in their order.
void copy_own(int rank, std::span<const SendPart> sends, std::span<const ReceivePart> receives) {
  size_t next = 0;
  for (const ReceivePart& to : receives) {
    if (to.peer != rank || to.bytes.empty()) continue;
    while (next < sends.size() && (sends[next].peer != rank || sends[next].bytes.empty())) ++next;
    check(next < sends.size() && sends[next].bytes.size() == to.bytes.size(), "a rank's parts to itself do not pair");
    std::memmove(to.bytes.data(), sends[next++].bytes.data(), to.bytes.size());
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

}  // namespace

void Communicator::exchange(std::string_view operation, std::span<const SendPart> sends,
                            std::span<const ReceivePart> receives) {
  copy_own(rank_, sends, receives);
  if (size_ == 1) return;
  const auto out = between_ranks(rank_, size_, sends, traffic_.bytes_sent);
  const auto in = between_ranks(rank_, size_, receives, traffic_.bytes_received);
  ++traffic_.calls;
  transfer(operation, out, in);
}

std::unique_ptr<Communicator> Communicator::duplicate() {
  std::vector<int> all(static_cast<size_t>(size_));
  std::iota(all.begin(), all.end(), 0);
  return split(all);
}

void Communicator::fail(std::string_view operation, int peer, std::string_view why) const {
  throw CommunicationError(fmt::format("rank {} of {}, {}: rank {} {}", rank_, size_, operation, peer, why));
}

}  // namespace tandem
