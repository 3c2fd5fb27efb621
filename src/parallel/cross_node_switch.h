// When a model's gradients take the chunked tree: its traffic between nodes takes more than a share of a step's time.
// And back, once it has taken less than a smaller share for some steps in a row, so that a share near the bound does
// not switch it to and fro. A plain value; every rank must be told the same shares.
#pragma once

namespace tandem {

struct SwitchOptions {
  double share = 0.4;  // above it: the tree
  double back = 0.3;   // below it, `steps` times in a row: back; ≤ share
  int steps = 3;
};

struct CrossNodeSwitch {
  bool on = false;
  int low_steps = 0;  // in a row, while on

  bool operator==(const CrossNodeSwitch&) const = default;
};

// After a step in which traffic between nodes took `share` of the time, in [0, 1].
constexpr CrossNodeSwitch after_step(CrossNodeSwitch now, double share, const SwitchOptions& options) {
  if (!now.on) return {share > options.share, 0};
  const int low = share < options.back ? now.low_steps + 1 : 0;
  return low >= options.steps ? CrossNodeSwitch{} : CrossNodeSwitch{true, low};
}

}  // namespace tandem
