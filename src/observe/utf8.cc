#include "observe/utf8.h"

#include <algorithm>
#include <array>

namespace tandem {
namespace {

struct Range {
  char32_t first, last;
};

// The blocks of combining marks and format characters that occur in running text.
constexpr std::array kZeroWidth = {
    Range{0x0300, 0x036F}, Range{0x0483, 0x0489}, Range{0x0591, 0x05BD}, Range{0x0610, 0x061A},  Range{0x064B, 0x065F},
    Range{0x0900, 0x0902}, Range{0x093C, 0x093C}, Range{0x0941, 0x0948}, Range{0x094D, 0x094D},  Range{0x0E31, 0x0E31},
    Range{0x0E34, 0x0E3A}, Range{0x0E47, 0x0E4E}, Range{0x1AB0, 0x1AFF}, Range{0x1DC0, 0x1DFF},  Range{0x200B, 0x200F},
    Range{0x202A, 0x202E}, Range{0x2060, 0x2064}, Range{0x20D0, 0x20F0}, Range{0x302A, 0x302D},  Range{0x3099, 0x309A},
    Range{0xFE00, 0xFE0F}, Range{0xFE20, 0xFE2F}, Range{0xFEFF, 0xFEFF}, Range{0xE0100, 0xE01EF}};

// East Asian Width W and F, and the emoji shown wide.
constexpr std::array kWide = {
    Range{0x1100, 0x115F},   Range{0x231A, 0x231B},  Range{0x23E9, 0x23EC},   Range{0x25FD, 0x25FE},
    Range{0x2614, 0x2615},   Range{0x26A1, 0x26A1},  Range{0x2705, 0x2705},   Range{0x2728, 0x2728},
    Range{0x274C, 0x274C},   Range{0x2753, 0x2755},  Range{0x2B50, 0x2B50},   Range{0x2E80, 0x303E},
    Range{0x3041, 0x33FF},   Range{0x3400, 0x4DBF},  Range{0x4E00, 0x9FFF},   Range{0xA000, 0xA4CF},
    Range{0xA960, 0xA97F},   Range{0xAC00, 0xD7A3},  Range{0xF900, 0xFAFF},   Range{0xFE30, 0xFE6F},
    Range{0xFF00, 0xFF60},   Range{0xFFE0, 0xFFE6},  Range{0x1F300, 0x1F64F}, Range{0x1F680, 0x1F6FF},
    Range{0x1F900, 0x1FAFF}, Range{0x20000, 0x3FFFD}};

bool contains(const auto& ranges, char32_t code) {
  const auto after = std::upper_bound(ranges.begin(), ranges.end(), code,
                                      [](char32_t value, const Range& range) { return value < range.first; });
  return after != ranges.begin() && code <= std::prev(after)->last;
}

struct Lead {
  size_t length = 0;  // 0: cannot start a character
  unsigned char second_low = 0x80, second_high = 0xBF;
};

// The second byte's range excludes overlong forms, surrogates and codes past U+10FFFF.
Lead classify(unsigned char byte) {
  if (byte >= 0xC2 && byte <= 0xDF) return {2};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte >= 0xE1 && byte <= 0xEF) return {3};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  if (byte >= 0xF1 && byte <= 0xF3) return {4};
  return {};
}

}  // namespace

Utf8Char decode_utf8(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  if (first < 0x80) return {first, 1, true};
  const Lead lead = classify(first);
  if (lead.length == 0) return {};
  char32_t code = first & (0x7Fu >> lead.length);
  for (size_t i = 1; i < lead.length; ++i) {
    const auto byte = i < text.size() ? static_cast<unsigned char>(text[i]) : 0;
    const bool ok = i == 1 ? byte >= lead.second_low && byte <= lead.second_high : byte >= 0x80 && byte <= 0xBF;
    if (!ok) return {0xFFFD, i, false};
    code = code << 6 | (byte & 0x3Fu);
  }
  return {code, lead.length, true};
}

int display_width(char32_t code) {
  if (code < 0x20 || (code >= 0x7F && code < 0xA0) || contains(kZeroWidth, code)) return 0;
  return contains(kWide, code) ? 2 : 1;
}

int display_width(std::string_view text) {
  int width = 0;
  while (!text.empty()) {
    const Utf8Char c = decode_utf8(text);
    width += display_width(c.code);
    text.remove_prefix(c.length);
  }
  return width;
}

std::string_view fit_to_width(std::string_view text, int columns) {
  size_t end = 0;
  while (end < text.size()) {
    const Utf8Char c = decode_utf8(text.substr(end));
    columns -= display_width(c.code);
    if (columns < 0) break;
    end += c.length;
  }
  return text.substr(0, end);
}

}  // namespace tandem
