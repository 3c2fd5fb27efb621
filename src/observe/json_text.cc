#include "observe/json_text.h"

#include <array>
#include <charconv>
#include <cmath>

#include "observe/utf8.h"

namespace tandem {
namespace {

void append_control(std::string& out, unsigned char byte) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  switch (byte) {
    case '\n':
      out += "\\n";
      return;
    case '\r':
      out += "\\r";
      return;
    case '\t':
      out += "\\t";
      return;
    default:
      out.append("\\u00").append(1, kDigits[byte >> 4]).append(1, kDigits[byte & 15]);
  }
}

template <class Float>
void append_number(std::string& out, Float value) {
  if (std::isnan(value)) {
    out += "\"NaN\"";
  } else if (std::isinf(value)) {
    out += value > 0 ? "\"Infinity\"" : "\"-Infinity\"";
  } else {
    std::array<char, 32> buffer;
    const auto written = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
    out.append(buffer.data(), written.ptr);
  }
}

}  // namespace

void append_json_string(std::string& out, std::string_view text) {
  out += '"';
  while (!text.empty()) {
    const Utf8Char c = decode_utf8(text);
    if (!c.valid) {
      out += "\xEF\xBF\xBD";
    } else if (c.code < 0x20) {
      append_control(out, static_cast<unsigned char>(c.code));
    } else {
      if (c.code == '"' || c.code == '\\') out += '\\';
      out += text.substr(0, c.length);
    }
    text.remove_prefix(c.length);
  }
  out += '"';
}

void append_json_number(std::string& out, double value) { append_number(out, value); }
void append_json_number(std::string& out, float value) { append_number(out, value); }

}  // namespace tandem
