// UTF-8 as Python reads it with errors="replace".
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tandem {

// Bytes of the character at the start of `text`, or 0 when there is none that is valid. `text` is not empty.
size_t utf8_length(std::string_view text);

// Each maximal invalid part (Unicode 15, section 3.9, "substitution of maximal subparts") becomes one U+FFFD.
std::string to_valid_utf8(std::string_view text);

}  // namespace tandem
