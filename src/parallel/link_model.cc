#include "parallel/link_model.h"

#include <algorithm>
#include <queue>
#include <tuple>

namespace tandem {
namespace {

// Ports of one direction: of each rank within its node, and of each node.
struct PortTimes {
  std::vector<double> of_rank, of_node;  // busy until
};

class LinkReplay {
 public:
  LinkReplay(const std::vector<ExchangeList>& ranks, const RankNetwork& network)
      : ranks_(ranks), network_(network), states_(ranks.size()), arrived_(ranks.size() * ranks.size()) {
    const auto num_nodes = static_cast<size_t>(network.topology.num_nodes());
    for (PortTimes* ports : {&out_, &in_}) ports->of_rank.resize(ranks.size()), ports->of_node.resize(num_nodes);
    for (RankState& state : states_) state.received.resize(ranks.size());
  }

  double run() {
    for (size_t rank = 0; rank < ranks_.size(); ++rank) push({0, next_event_++, rank, rank, 0, Event::kBegin});
    while (!events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      event.kind == Event::kBegin ? begin(event) : reach(event);
    }
    double end = 0;
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      check(states_[rank].next == ranks_[rank].size(), "exchanges that do not pair");
      end = std::max(end, states_[rank].clock);
    }
    return end;
  }

 private:
  struct Event {
    double time;
    size_t number;  // among equals the first made
    size_t from, to, bytes;
    enum Kind { kBegin, kReach } kind;
    bool operator>(const Event& other) const { return std::tie(time, number) > std::tie(other.time, other.number); }
  };
  struct RankState {
    double clock = 0;              // of the exchange it is in: the end of all that is known
    size_t next = 0;               // exchange
    bool inside = false;           // begun, and waiting for messages
    std::vector<size_t> received;  // messages by peer, of the exchanges before
  };

  void push(const Event& event) { events_.push(event); }
  std::vector<double>& arrived(size_t from, size_t to) { return arrived_[from * ranks_.size() + to]; }

  // The port, and how long the message holds it.
  std::pair<double*, double> port(PortTimes& ports, size_t rank, const Event& message) const {
    const auto from = static_cast<int>(message.from), to = static_cast<int>(message.to);
    const bool across = network_.topology.crosses(from, to);
    const Link& link = across ? network_.links.across : network_.links.local;
    double* busy = across ? &ports.of_node[static_cast<size_t>(network_.topology.node_of[rank])] : &ports.of_rank[rank];
    return {busy, link.message_s + static_cast<double>(message.bytes) / link.bytes_per_s};
  }

  void begin(const Event& event) {
    RankState& state = states_[event.from];
    if (state.next == ranks_[event.from].size()) return;
    state.inside = true, state.clock = event.time;
    for (const MessageSize& send : ranks_[event.from][state.next].sends) {
      Event message{event.time, next_event_++, event.from, static_cast<size_t>(send.peer), send.bytes, Event::kReach};
      const auto [busy, hold] = port(out_, event.from, message);
      const double start = std::max(event.time, *busy);
      *busy = start + hold;
      state.clock = std::max(state.clock, *busy);
      const bool across = network_.topology.crosses(static_cast<int>(message.from), send.peer);
      message.time = start + (across ? network_.links.across : network_.links.local).latency_s;
      push(message);
    }
    leave_if_through(event.from);
  }

  // The message's first byte is at the receiver's port.
  void reach(const Event& event) {
    const auto [busy, hold] = port(in_, event.to, event);
    *busy = std::max(event.time, *busy) + hold;
    arrived(event.from, event.to).push_back(*busy);
    leave_if_through(event.to);
  }

  void leave_if_through(size_t rank) {
    RankState& state = states_[rank];
    if (!state.inside) return;
    std::vector<size_t> received = state.received;
    double end = state.clock;
    for (const MessageSize& receive : ranks_[rank][state.next].receives) {
      const auto from = static_cast<size_t>(receive.peer);
      const std::vector<double>& times = arrived(from, rank);
      if (received[from] == times.size()) return;
      end = std::max(end, times[received[from]++]);
    }
    state.received = std::move(received);
    state.clock = end, state.inside = false, ++state.next;
    push({end, next_event_++, rank, rank, 0, Event::kBegin});
  }

  const std::vector<ExchangeList>& ranks_;
  const RankNetwork& network_;
  std::vector<RankState> states_;
  std::vector<std::vector<double>> arrived_;  // times by sender and receiver
  PortTimes out_, in_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  size_t next_event_ = 0;
};

}  // namespace

std::vector<ExchangeList> exchanges_of(const RoutePlan& plan) {
  std::vector<ExchangeList> ranks(static_cast<size_t>(plan.num_ranks));
  std::vector<int> last_step(ranks.size(), -1);
  const auto at_step = [&](int rank, int step) -> ExchangeSizes& {
    const auto r = static_cast<size_t>(rank);
    if (last_step[r] != step) ranks[r].emplace_back();
    last_step[r] = step;
    return ranks[r].back();
  };
  for (const RouteMessage& message : plan.messages) {
    const size_t bytes = plan.chunks[message.chunk].bytes;
    at_step(message.from, message.step).sends.push_back({message.to, bytes});
    at_step(message.to, message.step).receives.push_back({message.from, bytes});
  }
  return ranks;
}

double seconds_of(const std::vector<ExchangeList>& ranks, const RankNetwork& network) {
  check(static_cast<int>(ranks.size()) == network.topology.num_ranks(), "exchanges of other ranks than the network's");
  return LinkReplay(ranks, network).run();
}

double seconds_of(const RoutePlan& plan, const RankNetwork& network) { return seconds_of(exchanges_of(plan), network); }

}  // namespace tandem
