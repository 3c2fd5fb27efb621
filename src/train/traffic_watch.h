// Watches how much of each step's time traffic between nodes takes, and tells when gradients should take the chunked
// tree (parallel/cross_node_switch.h). What it decides is logged.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "parallel/communicator.h"
#include "parallel/cross_node_switch.h"

namespace tandem {

class TrafficWatch {
 public:
  // `model`: for the log. Without options it never switches.
  TrafficWatch(std::string model, std::optional<SwitchOptions> options) : model_(std::move(model)), options_(options) {}

  bool on() const { return now_.on; }

  // After a step. `across_seconds`: what this rank spent so far, of all steps, in exchanges that crossed between nodes.
  // All ranks call it together, and the one with the greatest share decides. Returns that share.
  double step_done(Communicator& world, double across_seconds);

 private:
  using Clock = std::chrono::steady_clock;

  std::string model_;
  std::optional<SwitchOptions> options_;
  CrossNodeSwitch now_;
  double across_before_ = 0;
  Clock::time_point step_began_ = Clock::now();
};

}  // namespace tandem
