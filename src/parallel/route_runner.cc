#include "parallel/route_runner.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>

#include "parallel/collectives.h"

namespace tandem {
namespace {

// One rank's messages of one step.
std::span<const RouteMessage> next_step(std::span<const RouteMessage> messages) {
  size_t count = 0;
  while (count < messages.size() && messages[count].step == messages[0].step) ++count;
  return messages.first(count);
}

void exchange_step(Communicator& group, std::string_view operation, const Topology& topology,
                   std::span<const SendPart> sends, std::span<const ReceivePart> receives, RouteTraffic& traffic) {
  bool across = false;
  for (const SendPart& part : sends) {
    const auto bytes = static_cast<int64_t>(part.bytes.size());
    const bool crosses = topology.crosses(group.rank(), part.peer);
    HopCount& hop = crosses ? traffic.across : traffic.local;
    ++hop.messages, hop.bytes += bytes;
    traffic.largest_message = std::max(traffic.largest_message, bytes);
    across |= crosses;
  }
  for (const ReceivePart& part : receives) across |= topology.crosses(group.rank(), part.peer);
  const auto start = std::chrono::steady_clock::now();
  group.exchange(operation, sends, receives);
  if (across) traffic.across_seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// What this rank holds of the sums. A chunk's sum so far grows in place; contributions wait beside it for their turn.
class RunningSums {
 public:
  RunningSums(Communicator& group, const RoutePlan& plan, std::span<const Segments<const float>> contributions,
              const Segments<float>& sum, const Arithmetic& arithmetic)
      : group_(group),
        plan_(plan),
        contributions_(contributions),
        sum_(sum),
        arithmetic_(arithmetic),
        held_(plan.chunks.size()) {
    for (const RouteMessage& message : plan.messages) ++held_[message.chunk].events;
  }

  std::span<const float> to_send(const RouteMessage& message) {
    if (message.last == message.first + 1 && message.first == group_.rank()) return own(message.chunk);
    check(message.first == 0, "a sum that does not begin with rank 0");
    grow(message.chunk, message.last);
    return *held_[message.chunk].so_far;
  }

  std::span<float> to_receive(const RouteMessage& message) {
    Held& held = held_[message.chunk];
    if (message.first == 0) {  // in the place of a smaller sum, which has gone on in an earlier step
      check(held.last < message.last, "a sum that is not greater");
      if (!held.so_far) held.so_far = place(message.chunk);
      held.last = message.last;
      return *held.so_far;
    }
    Room room = new_room(message.chunk);
    held.others.emplace(message.first, room);
    return room.values;
  }

  // A message is through: memory that nothing needs any more is given back.
  void done(const RouteMessage& message) {
    Held& held = held_[message.chunk];
    if (--held.events == 0 && !owned(message.chunk)) held = {};
  }

  void finish() {
    for (size_t chunk = 0; chunk < held_.size(); ++chunk)
      if (owned(chunk)) grow(chunk, plan_.num_ranks);
  }

 private:
  struct Room {
    std::shared_ptr<float> memory;
    std::span<float> values;
  };
  struct Held {
    std::optional<std::span<float>> so_far;
    int last = 0;                 // so_far has the contributions of ranks [0, last)
    std::shared_ptr<float> room;  // of so_far, unless it lies in the result
    std::map<int, Room> others;   // contributions of single ranks
    int64_t events = 0;           // messages to come
  };

  bool owned(size_t chunk) const {
    return std::ranges::binary_search(plan_.pieces[plan_.chunks[chunk].piece].owners, group_.rank());
  }
  template <class T>
  std::span<T> within(const Segments<T>& segments, size_t chunk) const {
    const RouteChunk& c = plan_.chunks[chunk];
    return segments[c.segment].subspan(c.offset / sizeof(float), c.bytes / sizeof(float));
  }
  std::span<const float> own(size_t chunk) const { return within(contributions_[plan_.chunks[chunk].piece], chunk); }

  Room new_room(size_t chunk) const {
    const size_t count = plan_.chunks[chunk].bytes / sizeof(float);
    std::shared_ptr<float> memory = arithmetic_.room(count);
    const std::span<float> values(memory.get(), count);
    return {std::move(memory), values};
  }
  std::span<float> place(size_t chunk) {
    if (owned(chunk)) return within(sum_, chunk);
    Room room = new_room(chunk);
    held_[chunk].room = std::move(room.memory);
    return room.values;
  }

  // Adds contributions in rank order until those of [0, last) are in.
  void grow(size_t chunk, int last) {
    Held& held = held_[chunk];
    check(!held.so_far || held.last <= last, "a sum that is already greater");
    for (int rank = held.last; rank < last; ++rank) {
      const auto found = held.others.find(rank);
      check(rank == group_.rank() || found != held.others.end(), "a contribution is missing");
      const std::span<const float> term = rank == group_.rank() ? own(chunk) : found->second.values;
      if (held.so_far) {
        arithmetic_.add(*held.so_far, term);
      } else {
        held.so_far = place(chunk);
        const size_t bytes = term.size_bytes();
        group_.copy_rows(std::as_writable_bytes(*held.so_far).data(), bytes, std::as_bytes(term).data(), bytes, bytes,
                         1);
      }
      if (rank != group_.rank()) held.others.erase(found);
    }
    held.last = last;
  }

  Communicator& group_;
  const RoutePlan& plan_;
  std::span<const Segments<const float>> contributions_;
  const Segments<float>& sum_;
  const Arithmetic& arithmetic_;
  std::vector<Held> held_;  // by chunk
};

}  // namespace

void RouteTraffic::add(const RouteTraffic& more) {
  local.messages += more.local.messages, local.bytes += more.local.bytes;
  across.messages += more.across.messages, across.bytes += more.across.bytes;
  largest_message = std::max(largest_message, more.largest_message);
  across_seconds += more.across_seconds;
}

Arithmetic host_arithmetic() {
  return {[](size_t count) { return std::shared_ptr<float>(new float[count], std::default_delete<float[]>()); },
          add_into};
}

void run_gather(Communicator& group, std::string_view operation, const RoutePlan& mine, const Topology& topology,
                std::span<const Segments<std::byte>> pieces, RouteTraffic& traffic) {
  std::span<const RouteMessage> rest = mine.messages;
  while (!rest.empty()) {
    const auto step = next_step(rest);
    std::vector<SendPart> sends;
    std::vector<ReceivePart> receives;
    for (const RouteMessage& message : step) {
      const RouteChunk& chunk = mine.chunks[message.chunk];
      const auto bytes = pieces[chunk.piece][chunk.segment].subspan(chunk.offset, chunk.bytes);
      if (message.from == group.rank()) {
        sends.push_back({message.to, bytes});
      } else {
        receives.push_back({message.from, bytes});
      }
    }
    exchange_step(group, operation, topology, sends, receives, traffic);
    rest = rest.subspan(step.size());
  }
}

void run_sum(Communicator& group, std::string_view operation, const RoutePlan& mine, const Topology& topology,
             std::span<const Segments<const float>> contributions, const Segments<float>& sum,
             const Arithmetic& arithmetic, RouteTraffic& traffic) {
  RunningSums sums(group, mine, contributions, sum, arithmetic);
  std::span<const RouteMessage> rest = mine.messages;
  while (!rest.empty()) {
    const auto step = next_step(rest);
    std::vector<SendPart> sends;
    std::vector<ReceivePart> receives;
    // What is sent is of earlier steps: it is made before room for what comes.
    for (const RouteMessage& message : step)
      if (message.from == group.rank()) sends.push_back({message.to, std::as_bytes(sums.to_send(message))});
    for (const RouteMessage& message : step)
      if (message.to == group.rank())
        receives.push_back({message.from, std::as_writable_bytes(sums.to_receive(message))});
    exchange_step(group, operation, topology, sends, receives, traffic);
    for (const RouteMessage& message : step) sums.done(message);
    rest = rest.subspan(step.size());
  }
  sums.finish();
}

}  // namespace tandem
