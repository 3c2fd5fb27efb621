// Pieces of JSON text, written without building a document.
#pragma once

#include <string>
#include <string_view>

namespace tandem {

// A quoted string. Bytes that are not UTF-8 become U+FFFD, one for each maximal broken part (Unicode 15, section 3.9).
void append_json_string(std::string& out, std::string_view text);

// The shortest text that reads back as the same value of that type; "NaN", "Infinity", "-Infinity" as strings.
void append_json_number(std::string& out, double value);
void append_json_number(std::string& out, float value);

}  // namespace tandem
