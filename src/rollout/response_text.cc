#include "rollout/response_text.h"

#include <algorithm>

namespace tandem {

bool ResponseText::cut_at_stop() {
  size_t longest = 0, found = std::string::npos;
  for (const std::string& stop : stops_) {
    const size_t from = searched_ - std::min(searched_, stop.size() - 1);
    found = std::min(found, text_.find(stop, from));
    longest = std::max(longest, stop.size());
  }
  searched_ = text_.size();
  if (found == std::string::npos) return false;
  text_.resize(found);
  cut_ = true;
  return true;
}

std::string ResponseText::take_piece() {
  size_t held = 0;
  for (const std::string& stop : stops_) held = std::max(held, stop.size() - 1);
  size_t end = text_.size() - std::min(text_.size(), cut_ ? 0 : held);
  while (end > 0 && end < text_.size() && (static_cast<unsigned char>(text_[end]) & 0xC0) == 0x80) --end;
  if (end <= shown_) return {};
  std::string piece = text_.substr(shown_, end - shown_);
  shown_ = end;
  return piece;
}

std::string ResponseText::finish() {
  if (!cut_) text_ += stream_.finish();
  std::string piece = text_.substr(std::min(shown_, text_.size()));
  shown_ = text_.size();
  return piece;
}

}  // namespace tandem
