// read_special_ids of tokenizer.h.
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "text/tokenizer.h"

namespace tandem {
namespace {

using nlohmann::json;

json read_json(const std::filesystem::path& path) {
  if (!std::filesystem::exists(path)) return json::object();
  const json value = json::parse(read_file(path), nullptr, /*allow_exceptions=*/false);
  if (!value.is_object()) throw IoError(path.string() + " is not a JSON object");
  return value;
}

int32_t to_id(const json& value, std::string_view key, const std::filesystem::path& path) {
  if (!value.is_number_integer() || value.get<int64_t>() < 0 || value.get<int64_t>() > INT32_MAX)
    throw IoError(path.string() + ": " + std::string(key) + " must be a token id, not " + value.dump());
  return value.get<int32_t>();
}

// A number, a list of numbers, or nothing.
std::vector<int32_t> ids_at(const json& config, std::string_view key, const std::filesystem::path& path) {
  const auto found = config.find(key);
  if (found == config.end() || found->is_null()) return {};
  if (!found->is_array()) return {to_id(*found, key, path)};
  std::vector<int32_t> ids;
  for (const json& item : *found) ids.push_back(to_id(item, key, path));
  return ids;
}

// tokenizer_config.json names tokens by their text: "</s>" or {"content": "</s>", ...}.
std::vector<int32_t> ids_named(const json& config, std::string_view key, const std::filesystem::path& folder) {
  const auto found = config.find(key);
  if (found == config.end() || found->is_null()) return {};
  const json& text = found->is_object() && found->contains("content") ? found->at("content") : *found;
  const std::filesystem::path path = folder / "tokenizer_config.json";
  if (!text.is_string()) throw IoError(path.string() + ": " + std::string(key) + " must be a token's text");
  const auto id = Tokenizer::from_folder(folder).token_to_id(text.get<std::string>());
  if (!id) throw IoError(path.string() + ": " + std::string(key) + " " + text.dump() + " is not in tokenizer.json");
  return {*id};
}

std::vector<int32_t> find_ids(const std::filesystem::path& folder, const std::string& token) {
  for (const char* file : {"generation_config.json", "config.json"}) {
    const std::filesystem::path path = folder / file;
    const std::vector<int32_t> ids = ids_at(read_json(path), token + "_id", path);
    if (!ids.empty()) return ids;
  }
  return ids_named(read_json(folder / "tokenizer_config.json"), token, folder);
}

}  // namespace

SpecialIds read_special_ids(const std::filesystem::path& folder) {
  if (!std::filesystem::is_directory(folder)) throw IoError("no model folder " + folder.string());
  const auto first = [](const std::vector<int32_t>& ids) {
    return ids.empty() ? std::nullopt : std::optional(ids.front());
  };
  return {find_ids(folder, "eos_token"), first(find_ids(folder, "bos_token")), first(find_ids(folder, "pad_token"))};
}

}  // namespace tandem
