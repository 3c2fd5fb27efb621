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
  std::string payload;
};

class Team {
 public:
  // `orders`: waits as long as the leader takes between verbs. `work`: what verbs exchange, within its timeout.
  // `on_order`: hears what this rank does next ("idle" between orders); may be empty. `routing`: of all ranks.
  Team(std::unique_ptr<Communicator> orders, std::unique_ptr<Communicator> work, Layout layout,
       std::function<void(std::string_view)> on_order = {}, Routing routing = {})
      : orders_(std::move(orders)),
        work_(std::move(work)),
        layout_(layout),
        on_order_(std::move(on_order)),
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
    broadcast_text(*orders_, "order", static_cast<char>(order) + payload, 0);
  }
  Instruction next() {  // the others
    if (on_order_) on_order_("idle");
    const std::string message = broadcast_text(*orders_, "order", {}, 0);
    const auto order = static_cast<Order>(message.at(0));
    if (on_order_) on_order_(name_of(order));
    return {order, message.substr(1)};
  }

  // The others are gone: the leader's end is told to nobody.
  void abandon() { abandoned_ = true; }
  bool abandoned() const { return abandoned_; }

 private:
  std::unique_ptr<Communicator> orders_, work_;
  Layout layout_;
  std::function<void(std::string_view)> on_order_;
  Routing routing_;
  bool abandoned_ = false;
};

}  // namespace tandem
