#include "config/given.h"

#include "config/verl_keys.h"

namespace tandem {
namespace {

constexpr size_t kMaxKeyLength = 1000;

bool is_missing(const Value& value) { return value.kind == Value::Kind::kPlain && value.text == "???"; }

// Puts `value` at the dotted `path` below the dict `root`.
void insert(Value& root, std::string_view path, const Value& value) {
  const size_t dot = path.find('.');
  const std::string_view name = path.substr(0, dot);
  Value* child = nullptr;
  for (auto& [key, item] : root.entries)
    if (key == name) child = &item;
  if (!child) child = &root.entries.emplace_back(name, Value{}).second;
  if (dot == std::string_view::npos) {
    *child = value;
  } else {
    if (child->kind != Value::Kind::kDict) *child = {.kind = Value::Kind::kDict, .origin = value.origin};
    insert(*child, path.substr(dot + 1), value);
  }
}

}  // namespace

void GivenKeys::set(std::string_view key, const Value& value) {
  if (key.size() > kMaxKeyLength) fail_at(value, "a key of " + std::to_string(key.size()) + " characters");
  if (value.kind == Value::Kind::kDict && !value.entries.empty()) {
    for (const auto& [name, item] : value.entries) {
      split_key(name, item.origin);
      set(key.empty() ? name : std::string(key) + "." + name, item);
    }
  } else if (!key.empty()) {
    set_leaf(rename_key(key), value);
  }
}

void GivenKeys::set_leaf(const std::string& key, const Value& value) {
  if (value.kind != Value::Kind::kDict) erase_under(key);
  for (size_t dot = key.find('.'); dot != std::string::npos; dot = key.find('.', dot + 1))
    if (const auto above = values_.find(key.substr(0, dot)); above != values_.end() && above->second.is_empty())
      values_.erase(above);
  values_[key] = value;
}

void GivenKeys::apply(const Override& change) {
  if (!change.remove) return set(change.key, change.value);
  const std::string key = rename_key(change.key);
  Config config;
  if (!values_.contains(key) && !find(key) && !list_fields(config).is_section(key) &&
      classify_key(key, Value{}).key_class == KeyClass::kUnknown)
    fail_at(change.value, "unknown key '" + change.key + "'; the nearest known key is " + nearest_key(key));
  erase_under(key);
  values_.erase(key);
}

void GivenKeys::erase_under(std::string_view key) {
  const std::string prefix = std::string(key) + ".";
  auto begin = values_.lower_bound(prefix);
  auto end = begin;
  while (end != values_.end() && end->first.starts_with(prefix)) ++end;
  values_.erase(begin, end);
}

std::optional<Value> GivenKeys::find(std::string_view key) const {
  if (const auto it = values_.find(key); it != values_.end() && it->second.kind != Value::Kind::kDict) {
    if (is_missing(it->second)) return std::nullopt;
    return it->second;
  }
  const std::string prefix = std::string(key) + ".";
  std::optional<Value> out;
  for (auto it = values_.lower_bound(prefix); it != values_.end() && it->first.starts_with(prefix); ++it) {
    if (!out) out = Value{.kind = Value::Kind::kDict, .origin = it->second.origin};
    insert(*out, std::string_view(it->first).substr(prefix.size()), it->second);
  }
  if (!out)
    if (const auto it = values_.find(key); it != values_.end()) out = it->second;
  return out;
}

}  // namespace tandem
