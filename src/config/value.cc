#include "config/value.h"

#include <algorithm>
#include <cctype>
#include <charconv>

namespace tandem {

bool Value::is_empty() const {
  switch (kind) {
    case Kind::kNull:
      return true;
    case Kind::kList:
      return items.empty();
    case Kind::kDict:
      return entries.empty();
    default:
      return false;
  }
}

namespace {

// Drops a leading '+' and the '_' between digits.
std::string digits_of(std::string_view text) {
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  std::string out;
  const auto is_digit = [&](size_t i) { return i < text.size() && std::isdigit(static_cast<unsigned char>(text[i])); };
  for (size_t i = 0; i < text.size(); ++i)
    if (text[i] != '_' || i == 0 || !is_digit(i - 1) || !is_digit(i + 1)) out += text[i];
  return out;
}

template <class T>
std::optional<T> whole(const std::string& digits) {
  T out{};
  const char* end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, out);
  if (error != std::errc{} || stop != end) return std::nullopt;
  return out;
}

}  // namespace

std::optional<int64_t> as_integer(std::string_view text) { return whole<int64_t>(digits_of(text)); }

std::optional<double> as_number(std::string_view text) {
  std::string digits = digits_of(text);
  const size_t sign = digits.starts_with('-') ? 1 : 0;
  for (const char* yaml : {".inf", ".nan"})
    if (equal_ignoring_case(std::string_view(digits).substr(sign), yaml)) digits.erase(sign, 1);
  return whole<double>(digits);
}

std::optional<bool> as_bool(std::string_view text) {
  if (equal_ignoring_case(text, "true")) return true;
  if (equal_ignoring_case(text, "false")) return false;
  return std::nullopt;
}

std::string_view trim(std::string_view text) {
  const auto is_space = [](unsigned char c) { return std::isspace(c) != 0; };
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

Value plain_value(std::string_view text, std::string origin) {
  Value value{.origin = std::move(origin)};
  if (text == "~" || equal_ignoring_case(text, "null") || text == "None") return value;
  value.kind = Value::Kind::kPlain;
  value.text = text;
  return value;
}

Value quoted_value(std::string text, std::string origin) {
  return {.kind = Value::Kind::kQuoted, .text = std::move(text), .origin = std::move(origin)};
}

std::string to_text(const Value& value) {
  std::string out;
  switch (value.kind) {
    case Value::Kind::kNull:
      return "null";
    case Value::Kind::kPlain:
      return value.text;
    case Value::Kind::kQuoted:
      return "'" + value.text + "'";
    case Value::Kind::kList:
      for (const Value& item : value.items) out += (out.empty() ? "" : ", ") + to_text(item);
      return "[" + out + "]";
    case Value::Kind::kDict:
      for (const auto& [key, item] : value.entries) out += (out.empty() ? "" : ", ") + key + ": " + to_text(item);
      return "{" + out + "}";
  }
  return out;
}

void fail_at(const Value& value, const std::string& what) {
  throw ConfigError(value.origin.empty() ? what : value.origin + ": " + what);
}

std::vector<std::string> split_key(std::string_view key, std::string_view origin) {
  std::vector<std::string> parts;
  for (size_t begin = 0;;) {
    const size_t dot = key.find('.', begin);
    parts.emplace_back(key.substr(begin, dot - begin));
    if (parts.back().empty())
      throw ConfigError(std::string(origin) + ": '" + std::string(key) + "' is no key: write section.key, e.g. " +
                        "actor_rollout_ref.rollout.n");
    if (dot == std::string_view::npos) return parts;
    begin = dot + 1;
  }
}

}  // namespace tandem
