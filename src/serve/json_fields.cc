#include "serve/json_fields.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "serve/api_error.h"

namespace tandem {
namespace {

using json = nlohmann::ordered_json;
constexpr int kMaxDepth = 64;

[[noreturn]] void refuse(const std::string& name, const std::string& what) {
  throw ApiError(400, name + " " + what, name);
}

}  // namespace

json parse_request(const std::string& body) {
  const auto limit_depth = [](int depth, json::parse_event_t, const json&) {
    if (depth > kMaxDepth) throw ApiError(400, fmt::format("the request is nested deeper than {} levels", kMaxDepth));
    return true;
  };
  json value;
  try {
    value = json::parse(body, limit_depth);
  } catch (const json::exception&) {  // its words repeat the body
    throw ApiError(400, "the request's body is not valid JSON");
  }
  if (!value.is_object()) throw ApiError(400, "the request's body must be a JSON object");
  return value;
}

const json* JsonFields::raw(const std::string& name) {
  known_.insert(name);
  const auto found = object_.find(name);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

std::optional<double> JsonFields::number(const std::string& name, double least, double most) {
  const json* value = raw(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) refuse(name, "must be a number");
  const auto number = value->get<double>();
  if (!(number >= least && number <= most)) refuse(name, fmt::format("must be between {} and {}", least, most));
  return number;
}

std::optional<int64_t> JsonFields::integer(const std::string& name, int64_t least, int64_t most) {
  const json* value = raw(name);
  if (value == nullptr) return std::nullopt;
  const bool whole = value->is_number_integer() ||
                     (value->is_number_float() && std::trunc(value->get<double>()) == value->get<double>() &&
                      std::abs(value->get<double>()) < 9e15);
  if (!whole) refuse(name, "must be a whole number");
  const bool too_large = value->is_number_unsigned() && value->get<uint64_t>() > static_cast<uint64_t>(INT64_MAX);
  const int64_t number = too_large ? INT64_MAX : value->get<int64_t>();
  if (too_large || number < least || number > most) refuse(name, fmt::format("must be between {} and {}", least, most));
  return number;
}

std::optional<bool> JsonFields::boolean(const std::string& name) {
  const json* value = raw(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) refuse(name, "must be true or false");
  return value->get<bool>();
}

std::optional<std::string> JsonFields::text(const std::string& name) {
  const json* value = raw(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) refuse(name, "must be a text");
  return value->get<std::string>();
}

std::vector<std::string> JsonFields::texts(const std::string& name, size_t most) {
  const json* value = raw(name);
  if (value == nullptr) return {};
  if (value->is_string()) return {value->get<std::string>()};
  if (!value->is_array()) refuse(name, "must be a text or a list of texts");
  if (value->size() > most) refuse(name, fmt::format("holds {} texts, at most {} are taken", value->size(), most));
  std::vector<std::string> all;
  for (const json& text : *value) {
    if (!text.is_string()) refuse(name, "must be a text or a list of texts");
    all.push_back(text.get<std::string>());
  }
  return all;
}

void JsonFields::ignore(std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) known_.emplace(name);
}

void JsonFields::require(const std::string& name, const json& only, std::string_view why) {
  const json* value = raw(name);
  if (value != nullptr && *value != only) refuse(name, fmt::format("can only be {} here: {}", only.dump(), why));
}

void JsonFields::finish() const {
  for (const auto& [name, value] : object_.items()) {
    const std::string shown = name.substr(0, 64);
    if (!known_.contains(name)) throw ApiError(400, "unknown member '" + shown + "' in the request; remove it", shown);
  }
}

std::vector<TokenId> read_token_ids(const json& list, const std::string& name, int64_t vocab) {
  std::vector<TokenId> ids;
  ids.reserve(list.size());
  for (const json& id : list) {
    if (!id.is_number_integer()) refuse(name, "must hold whole numbers where it holds token ids");
    if (id.get<int64_t>() < 0 || id.get<uint64_t>() >= static_cast<uint64_t>(vocab))
      refuse(name, fmt::format("holds the id {}, the model's are 0 to {}", id.dump(), vocab - 1));
    ids.push_back(id.get<TokenId>());
  }
  return ids;
}

}  // namespace tandem
