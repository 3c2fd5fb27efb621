// The text of a response while it grows: finds stop strings, even across token borders, and hands out pieces that can
// no longer turn out to belong to one.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace tandem {

class ResponseText {
 public:
  // `stops` must outlive it.
  ResponseText(DecodeStream stream, std::span<const std::string> stops) : stream_(std::move(stream)), stops_(stops) {}

  void push(int32_t id) { text_ += stream_.push(id); }
  // Whether a stop string has come since the last call of either; from then on the text ends before it.
  bool cut_at_stop();
  void ignore_stops() { searched_ = text_.size(); }  // those complete by now do not count
  // What may be shown since the last call.
  std::string take_piece();
  // The rest, when no token follows.
  std::string finish();
  const std::string& text() const { return text_; }

 private:
  DecodeStream stream_;
  std::span<const std::string> stops_;
  std::string text_;
  size_t searched_ = 0, shown_ = 0;
  bool cut_ = false;
};

}  // namespace tandem
