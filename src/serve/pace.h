// How fast replies are made, and so how long one more would wait for its turn.
#pragma once

#include <cstdint>
#include <optional>

namespace tandem {

// Measured over the passes of the last half minute or so in which something was computed. Not thread-safe.
class ReplyPace {
 public:
  // A pass that took `seconds` and drew `tokens`; `replies` ended with it, which have `reply_tokens` together.
  void add_pass(double seconds, int64_t tokens, int64_t replies, int64_t reply_tokens);

  // Seconds until the reply that follows `ahead` others may begin, where `at_once` are computed together. Nothing while
  // no reply has ended and it cannot be told.
  std::optional<double> seconds_to_turn(int64_t ahead, int64_t at_once) const;

 private:
  double seconds_ = 0, tokens_ = 0;        // each pass counts less the longer ago it was
  double replies_ = 0, reply_tokens_ = 0;  // the same, by replies
};

}  // namespace tandem
