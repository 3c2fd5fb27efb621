#include "text/utf8.h"

#include <algorithm>
#include <cstdint>

namespace tandem {
namespace {

struct Scan {
  size_t length;  // bytes of the character, or of the invalid part
  bool valid;
};

// Unicode's table 3-7: only the second byte has limits of its own, which depend on the first.
Scan scan_character(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte(0);
  if (first < 0x80) return {1, true};
  if (first < 0xC2 || first > 0xF4) return {1, false};
  const size_t length = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  uint8_t low = 0x80, high = 0xBF;
  if (first == 0xE0) low = 0xA0;
  if (first == 0xED) high = 0x9F;
  if (first == 0xF0) low = 0x90;
  if (first == 0xF4) high = 0x8F;
  for (size_t i = 1; i < length; ++i) {
    if (i >= text.size() || byte(i) < low || byte(i) > high) return {i, false};
    low = 0x80, high = 0xBF;
  }
  return {length, true};
}

}  // namespace

size_t utf8_length(std::string_view text) {
  const Scan scan = scan_character(text);
  return scan.valid ? scan.length : 0;
}

std::string to_valid_utf8(std::string_view text) {
  std::string valid;
  valid.reserve(text.size());
  while (!text.empty()) {
    const Scan scan = scan_character(text);
    valid.append(scan.valid ? text.substr(0, scan.length) : std::string_view("\xEF\xBF\xBD"));
    text.remove_prefix(scan.length);
  }
  return valid;
}

}  // namespace tandem
