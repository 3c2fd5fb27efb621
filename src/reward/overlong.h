// DAPO's soft overlong punishment (Yu et al. 2025, eq. 13): nothing up to max_response_length - buffer tokens, then
// falling linearly to -penalty_factor at max_response_length. It is added to the score. Lengths are those of the
// response itself: neither prompt nor padding counts.
#pragma once

#include <cstdint>

namespace tandem {

// reward.reward_kwargs.overlong_buffer_cfg
struct OverlongOptions {
  bool enable = false;
  int64_t len = 0;  // tokens
  double penalty_factor = 1.0;
  int64_t max_response_length = 0;  // tokens
};

// ConfigError unless 0 < len < max_response_length; a disabled one is always fine.
void check_overlong(const OverlongOptions& options);

double overlong_penalty(const OverlongOptions& options, int64_t response_length);  // <= 0

}  // namespace tandem
