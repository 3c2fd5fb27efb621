#include "serve/pace.h"

#include <algorithm>
#include <cmath>

namespace tandem {
namespace {

constexpr double kMemorySeconds = 30, kMemoryReplies = 100;

}  // namespace

void ReplyPace::add_pass(double seconds, int64_t tokens, int64_t replies, int64_t reply_tokens) {
  const double fade = std::exp(-seconds / kMemorySeconds);
  seconds_ = seconds_ * fade + seconds;
  tokens_ = tokens_ * fade + static_cast<double>(tokens);
  if (replies == 0) return;
  const double forget = std::exp(-static_cast<double>(replies) / kMemoryReplies);
  replies_ = replies_ * forget + static_cast<double>(replies);
  reply_tokens_ = reply_tokens_ * forget + static_cast<double>(reply_tokens);
}

std::optional<double> ReplyPace::seconds_to_turn(int64_t ahead, int64_t at_once) const {
  if (ahead < at_once) return 0;
  if (replies_ == 0 || tokens_ == 0) return std::nullopt;
  const double replies_per_second = tokens_ / seconds_ / std::max(1.0, reply_tokens_ / replies_);
  return static_cast<double>(ahead - at_once + 1) / replies_per_second;
}

}  // namespace tandem
