#include "reward/overlong.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace tandem {

void check_overlong(const OverlongOptions& options) {
  if (!options.enable) return;
  if (options.len <= 0 || options.len >= options.max_response_length)
    throw ConfigError(
        fmt::format("reward.reward_kwargs.overlong_buffer_cfg.len={} must lie between 0 and the response limit {}, "
                    "both excluded",
                    options.len, options.max_response_length));
  if (!std::isfinite(options.penalty_factor) || options.penalty_factor < 0)
    throw ConfigError(
        fmt::format("reward.reward_kwargs.overlong_buffer_cfg.penalty_factor={} must be a number of at least 0",
                    options.penalty_factor));
}

double overlong_penalty(const OverlongOptions& options, int64_t response_length) {
  if (!options.enable) return 0;
  const auto excess = static_cast<double>(response_length - (options.max_response_length - options.len));
  return std::min(0.0, -excess / static_cast<double>(options.len) * options.penalty_factor);
}

}  // namespace tandem
