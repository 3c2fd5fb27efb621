// The ranks of one engine. Rank 0 leads: each of its verbs first tells the others which to carry out with it, so that
// the program, the rewards and the files of a run know one engine only.
#pragma once

#include <memory>
#include <string>

#include "parallel/collectives.h"
#include "parallel/mesh.h"

namespace tandem {

enum class Order : uint8_t { kGenerate, kGenerateValidation, kGenerateGreedy, kUpdate, kSave, kLoad, kRestore, kStop };

struct Instruction {
  Order order;
  std::string payload;
};

class Team {
 public:
  // `orders`: waits as long as the leader takes between verbs. `work`: what verbs exchange, within its timeout.
  Team(std::unique_ptr<Communicator> orders, std::unique_ptr<Communicator> work, Layout layout)
      : orders_(std::move(orders)), work_(std::move(work)), layout_(layout) {}

  bool leads() const { return work_->rank() == 0; }
  Communicator& work() { return *work_; }
  const Layout& layout() const { return layout_; }

  void tell(Order order, const std::string& payload) {  // the leader
    broadcast_text(*orders_, "order", static_cast<char>(order) + payload, 0);
  }
  Instruction next() {  // the others
    const std::string message = broadcast_text(*orders_, "order", {}, 0);
    return {static_cast<Order>(message.at(0)), message.substr(1)};
  }

 private:
  std::unique_ptr<Communicator> orders_, work_;
  Layout layout_;
};

}  // namespace tandem
