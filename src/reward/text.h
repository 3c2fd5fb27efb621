// Small text tools of the rules.
#pragma once

#include <string>
#include <string_view>

namespace tandem {

inline bool is_digit(char c) { return c >= '0' && c <= '9'; }
inline bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

std::string replace_all(std::string_view text, std::string_view from, std::string_view to);  // `from` is not empty
size_t count_of(std::string_view text, std::string_view part);

}  // namespace tandem
