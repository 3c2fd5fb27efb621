#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "config/fields.h"

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;

template <class T>
struct IsOptional : std::false_type {};
template <class T>
struct IsOptional<std::optional<T>> : std::true_type {};
template <class T>
struct IsVector : std::false_type {};
template <class T>
struct IsVector<std::vector<T>> : std::true_type {};

template <class T>
constexpr const char* kTypeName = "text";
template <>
constexpr const char* kTypeName<bool> = "true or false";
template <>
constexpr const char* kTypeName<int64_t> = "a whole number";
template <>
constexpr const char* kTypeName<double> = "a number";

[[noreturn]] void fail_type(const Field& field, const Value& value) {
  fail_at(value, fmt::format("{}={}: expected {}", field.key, to_text(value), expected_text(field)));
}

template <class T>
T scalar(const Field& field, const Value& value) {
  if (!value.is_scalar()) fail_type(field, value);
  if constexpr (std::is_same_v<T, std::string>) {
    if (!field.choices.empty() && std::ranges::find(field.choices, value.text) == field.choices.end())
      fail_type(field, value);
    return value.text;
  } else {
    std::optional<T> number;
    if constexpr (std::is_same_v<T, bool>) number = as_bool(value.text);
    if constexpr (std::is_same_v<T, int64_t>) number = as_integer(value.text);
    if constexpr (std::is_same_v<T, double>) number = as_number(value.text);
    if (!number) fail_type(field, value);
    return *number;
  }
}

template <class T>
std::vector<T> list(const Field& field, const Value& value) {
  std::vector<T> out;
  // A shell that keeps the quotes of "['a','b']" hands over a text that holds a list.
  if (value.kind == Value::Kind::kQuoted && value.text.starts_with('['))
    return list<T>(field, parse_override_value(value.text, value.origin));
  if (value.kind == Value::Kind::kQuoted && value.text.empty()) return out;
  if (value.kind == Value::Kind::kList) {
    for (const Value& item : value.items) {
      if (!item.is_scalar()) fail_type(field, value);
      out.push_back(scalar<T>(field, item));
    }
  } else {
    out.push_back(scalar<T>(field, value));
  }
  return out;
}

Json json_of(const Value& value) {
  switch (value.kind) {
    case Value::Kind::kNull:
      return nullptr;
    case Value::Kind::kQuoted:
      return value.text;
    case Value::Kind::kPlain:
      if (const auto flag = as_bool(value.text)) return *flag;
      if (const auto integer = as_integer(value.text)) return *integer;
      if (const auto number = as_number(value.text); number && std::isfinite(*number)) return *number;
      return value.text;
    case Value::Kind::kList: {
      Json out = Json::array();
      for (const Value& item : value.items) out.push_back(json_of(item));
      return out;
    }
    case Value::Kind::kDict: {
      Json out = Json::object();
      for (const auto& [key, item] : value.entries) out[key] = json_of(item);
      return out;
    }
  }
  return nullptr;
}

JsonText json_text(const Field& field, const Value& value) {
  if (value.kind == Value::Kind::kNull) return {};
  if (value.kind != Value::Kind::kDict) fail_type(field, value);
  try {
    return {json_of(value).dump()};
  } catch (const nlohmann::json::exception&) {
    fail_at(value, field.key + ": holds bytes that are not UTF-8");
  }
}

// "${" would be an interpolation when the text is read again.
std::string escape_interpolation(std::string text) {
  for (size_t at = text.find("${"); at != std::string::npos; at = text.find("${", at + 3)) text.insert(at, 1, '\\');
  return text;
}

Json escape_interpolation(const Json& json) {
  if (json.is_string()) return escape_interpolation(json.get<std::string>());
  if (!json.is_structured()) return json;
  Json out = json;
  for (auto& item : out) item = escape_interpolation(item);
  return out;
}

std::string text_of(bool value) { return value ? "true" : "false"; }
std::string text_of(int64_t value) { return std::to_string(value); }
std::string text_of(double value) {
  if (!std::isfinite(value)) return std::isnan(value) ? ".nan" : value > 0 ? ".inf" : "-.inf";
  const std::string text = fmt::format("{}", value);
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}
std::string text_of(const JsonText& value) {
  const Json json = Json::parse(value.text, nullptr, false);
  return json.is_object() ? escape_interpolation(json).dump() : value.text;
}

std::string text_of(const std::string& raw) {
  const std::string value = escape_interpolation(raw);
  const auto is_plain = [](unsigned char c) {
    return std::isalnum(c) || std::string_view("_./-~").find(c) != std::string::npos;
  };
  const auto may_begin = [](unsigned char c) {
    return std::isalnum(c) || std::string_view("_/~").find(c) != std::string::npos;
  };
  const bool null_like = plain_value(value, "").kind == Value::Kind::kNull;
  if (!value.empty() && !null_like && may_begin(static_cast<unsigned char>(value[0])) &&
      std::ranges::all_of(value, is_plain))
    return value;
  std::string out = "\"";
  for (const unsigned char c : value) {
    if (c == '"' || c == '\\') out += '\\';
    if (c < 0x20 || c == 0x7f)
      out += fmt::format("\\x{:02x}", c);
    else
      out += static_cast<char>(c);
  }
  return out + "\"";
}

}  // namespace

void assign(const Field& field, const Value& value) {
  std::visit(
      [&](auto* member) {
        using T = std::remove_pointer_t<decltype(member)>;
        if constexpr (std::is_same_v<T, JsonText>) {
          *member = json_text(field, value);
        } else if constexpr (IsVector<T>::value) {
          *member = list<typename T::value_type>(field, value);
        } else if constexpr (IsOptional<T>::value) {
          const bool absent =
              value.kind == Value::Kind::kNull || (value.kind == Value::Kind::kQuoted && value.text.empty());
          *member = absent ? T() : T(scalar<typename T::value_type>(field, value));
        } else {
          *member = scalar<T>(field, value);
        }
      },
      field.member);
}

std::string field_text(const Field& field) {
  return std::visit(
      [](const auto* member) -> std::string {
        using T = std::remove_cvref_t<decltype(*member)>;
        if constexpr (IsOptional<T>::value) {
          return *member ? text_of(**member) : "null";
        } else if constexpr (IsVector<T>::value) {
          std::vector<std::string> items;
          for (const auto& item : *member) items.push_back(text_of(item));
          return fmt::format("[{}]", fmt::join(items, ", "));
        } else {
          return text_of(*member);
        }
      },
      field.member);
}

std::string expected_text(const Field& field) {
  const std::string choices = field.choices.empty() ? "" : fmt::format("one of {}", fmt::join(field.choices, ", "));
  return std::visit(
      [&](const auto* member) -> std::string {
        using T = std::remove_cvref_t<decltype(*member)>;
        const auto name = [&]<class U>(const U*) { return choices.empty() ? std::string(kTypeName<U>) : choices; };
        if constexpr (std::is_same_v<T, JsonText>)
          return "a dict {key: value}";
        else if constexpr (IsOptional<T>::value)
          return name(static_cast<const typename T::value_type*>(nullptr)) + " or null";
        else if constexpr (IsVector<T>::value)
          return "a list [...], each item " + name(static_cast<const typename T::value_type*>(nullptr));
        else
          return name(member);
      },
      field.member);
}

}  // namespace tandem
