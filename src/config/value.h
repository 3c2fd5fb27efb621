// What a user wrote, before it has a type: YAML and Hydra's override grammar both give this.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"

namespace tandem {

struct DictEntry;

struct Value {
  enum class Kind : uint8_t { kNull, kPlain, kQuoted, kList, kDict };
  Kind kind = Kind::kNull;
  std::string text;  // of a kPlain or kQuoted scalar, exactly as written
  std::vector<Value> items;
  std::vector<DictEntry> entries;
  std::string origin;  // where it stands: "grpo.yaml:12" or "override 'a.b=1'"

  bool is_scalar() const { return kind == Kind::kPlain || kind == Kind::kQuoted; }
  bool is_empty() const;  // null, [] or {}
};

struct DictEntry {
  DictEntry(std::string_view key, Value value) : first(key), second(std::move(value)) {}
  std::string first;
  Value second;
};

// An unquoted scalar; "null", "None" and "~" become kNull.
Value plain_value(std::string_view text, std::string origin);
Value quoted_value(std::string text, std::string origin);

// In one line, for messages: [a, b], {k: v}, null.
std::string to_text(const Value& value);

// ConfigError with "origin: " in front.
[[noreturn]] void fail_at(const Value& value, const std::string& what);

// The number that a text spells in full: 12, 1_000; and 1e-6, .5, inf, nan for as_number.
std::optional<int64_t> as_integer(std::string_view text);
std::optional<double> as_number(std::string_view text);
std::optional<bool> as_bool(std::string_view text);  // true, False, ...

std::string_view trim(std::string_view text);
bool equal_ignoring_case(std::string_view a, std::string_view b);

// Splits "a.b.c" at its dots; ConfigError for an empty component.
std::vector<std::string> split_key(std::string_view key, std::string_view origin);

// The text of a YAML file; `name` stands for it in errors. An empty text is an empty dict.
Value parse_yaml(std::string_view text, std::string_view name);

// The right-hand side of an override. Empty text is the empty string.
Value parse_override_value(std::string_view text, std::string_view origin);

struct Override {
  bool remove = false;  // ~key
  std::string key;
  Value value;
};
Override parse_override(std::string_view text);

}  // namespace tandem
