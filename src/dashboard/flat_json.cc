#include "dashboard/flat_json.h"

#include <charconv>
#include <limits>

namespace tandem {
namespace {

constexpr size_t kBroken = std::string_view::npos;

size_t skip_blanks(std::string_view text, size_t at) {
  while (at < text.size() && (text[at] == ' ' || text[at] == '\t' || text[at] == '\r')) ++at;
  return at;
}

// `begin` is the opening quote; the result is one past the closing one.
size_t skip_string(std::string_view text, size_t begin) {
  for (size_t at = begin + 1; at < text.size(); ++at) {
    at = text.find_first_of("\"\\", at);
    if (at == text.npos) break;
    if (text[at] == '"') return at + 1;
    ++at;  // what follows a backslash
  }
  return kBroken;
}

size_t skip_nested(std::string_view text, size_t begin) {
  int depth = 0;
  for (size_t at = begin; at < text.size();) {
    at = text.find_first_of("[]{}\"", at);
    if (at == text.npos) return kBroken;
    if (text[at] == '"') {
      at = skip_string(text, at);
      if (at == kBroken) return kBroken;
      continue;
    }
    depth += text[at] == '[' || text[at] == '{' ? 1 : -1;
    ++at;
    if (depth == 0) return at;
  }
  return kBroken;
}

bool as_special(std::string_view text, double& value) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (text == "\"NaN\"") return value = std::numeric_limits<double>::quiet_NaN(), true;
  if (text == "\"Infinity\"") return value = kInfinity, true;
  if (text == "\"-Infinity\"") return value = -kInfinity, true;
  return false;
}

}  // namespace

size_t skip_json_value(std::string_view text, size_t begin) {
  if (begin >= text.size()) return kBroken;
  if (text[begin] == '"') return skip_string(text, begin);
  if (text[begin] == '[' || text[begin] == '{') return skip_nested(text, begin);
  const size_t end = text.find_first_of(",]} \t\r", begin);
  return end == text.npos ? text.size() : end;
}

bool parse_flat_json(std::string_view line, const std::function<void(std::string_view, double)>& on_number) {
  size_t at = skip_blanks(line, 0);
  if (at >= line.size() || line[at] != '{') return false;
  at = skip_blanks(line, at + 1);
  if (at < line.size() && line[at] == '}') return skip_blanks(line, at + 1) == line.size();
  for (;;) {
    if (at >= line.size() || line[at] != '"') return false;
    const size_t key_end = skip_string(line, at);
    if (key_end == kBroken) return false;
    const std::string_view key = line.substr(at + 1, key_end - at - 2);
    at = skip_blanks(line, key_end);
    if (at >= line.size() || line[at] != ':') return false;
    at = skip_blanks(line, at + 1);
    const size_t end = skip_json_value(line, at);
    if (end == kBroken || end == at) return false;
    double value = 0;
    const auto read = std::from_chars(line.data() + at, line.data() + end, value);
    if ((read.ec == std::errc() && read.ptr == line.data() + end) || as_special(line.substr(at, end - at), value))
      on_number(key, value);
    at = skip_blanks(line, end);
    if (at >= line.size()) return false;
    if (line[at] == '}') return skip_blanks(line, at + 1) == line.size();
    if (line[at] != ',') return false;
    at = skip_blanks(line, at + 1);
  }
}

}  // namespace tandem
