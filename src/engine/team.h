// The ranks of one engine. Rank 0 leads: each of its verbs first tells the others which to carry out with it, so that
// the program, the rewards and the files of a run know one engine only.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "parallel/collectives.h"
#include "parallel/mesh.h"
#include "parallel/route_choice.h"

namespace tandem {

enum class Order : uint8_t {
  kGenerate,
  kGenerateValidation,
  kGenerateGreedy,
  kUpdate,
  kSave,
  kLoad,
  kRestore,
  kBeginTrace,
  kEndTrace,
  kStop
};

constexpr std::string_view name_of(Order order) {
  constexpr std::string_view kNames[] = {"generate", "validate", "generate_greedy", "update",    "save",
                                         "load",     "restore",  "begin_trace",     "end_trace", "stop"};
  return kNames[static_cast<size_t>(order)];
}

struct Instruction {
  Order order;
  bool held;  // until its breakpoints are released (Team::hold)
  std::string payload;
};

// What surrounds a team. All may be empty.
struct TeamHooks {
  std::function<void(std::string_view)> on_order;  // what this rank does next ("idle" between orders)
  // Whether the others of the team are to be held in this method ("update") of the actor: asked of the leader. Then
  // `hold` of every rank returns when it goes on; `arguments` are their shapes.
  std::function<bool(std::string_view method)> is_held;
  std::function<void(std::string_view method, const std::function<std::string()>& arguments)> hold;
};

class Team {
 public:
  // `orders`: waits as long as the leader takes between verbs. `work`: what verbs exchange, within its timeout.
  // `routing`: of all ranks.
  Team(std::unique_ptr<Communicator> orders, std::unique_ptr<Communicator> work, Layout layout, TeamHooks hooks = {},
       Routing routing = {})
      : orders_(std::move(orders)),
        work_(std::move(work)),
        layout_(layout),
        hooks_(std::move(hooks)),
        routing_(std::move(routing)) {}

  bool leads() const { return work_->rank() == 0; }
  Communicator& work() { return *work_; }
  const Layout& layout() const { return layout_; }
  // For a model that these ranks share.
  Routing routing_of(std::span<const int> ranks) const {
    Routing part = routing_;
    if (!part.network.topology.node_of.empty()) part.network.topology = routing_.network.topology.of(ranks);
    return part;
  }

  void tell(Order order, const std::string& payload) {  // the leader
    const bool held = hooks_.is_held && hooks_.is_held(name_of(order));
    broadcast_text(*orders_, "order", std::string{static_cast<char>(order), static_cast<char>(held)} + payload, 0);
    if (held) hold(order, {});
  }
  Instruction next() {  // the others
    if (hooks_.on_order) hooks_.on_order("idle");
    const std::string message = broadcast_text(*orders_, "order", {}, 0);
    const auto order = static_cast<Order>(message.at(0));
    if (hooks_.on_order) hooks_.on_order(name_of(order));
    return {order, message.at(1) != 0, message.substr(2)};
  }
  void hold(Order order, const std::function<std::string()>& arguments) const {
    if (hooks_.hold) hooks_.hold(name_of(order), arguments);
  }

  // Bytes of orders that went out since the last call.
  int64_t take_order_bytes() {
    const int64_t bytes = orders_->traffic().bytes_sent;
    orders_->reset_traffic();
    return bytes;
  }

  // The others are gone: the leader's end is told to nobody.
  void abandon() { abandoned_ = true; }
  bool abandoned() const { return abandoned_; }

 private:
  std::unique_ptr<Communicator> orders_, work_;
  Layout layout_;
  TeamHooks hooks_;
  Routing routing_;
  bool abandoned_ = false;
};

}  // namespace tandem
