// UTF-8 as a terminal and a JSON reader see it. Independent of the locale.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tandem {

struct Utf8Char {
  char32_t code = 0xFFFD;
  size_t length = 1;  // bytes taken; for a broken part, its length (Unicode 15, section 3.9, table 3-7)
  bool valid = false;
};
// The first character of `text`, which is not empty.
Utf8Char decode_utf8(std::string_view text);

// Terminal columns: 0 for combining marks and controls, 2 for East Asian wide characters and emoji, else 1.
int display_width(char32_t code);
int display_width(std::string_view text);

// The longest start of `text` that fits into `columns`.
std::string_view fit_to_width(std::string_view text, int columns);

}  // namespace tandem
