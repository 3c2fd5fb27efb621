#include "checkpoint/strict_json.h"

#include <nlohmann/json.hpp>
#include <unordered_set>
#include <vector>

#include "base/error.h"

namespace tandem {

nlohmann::json parse_strict_json(std::string_view text, int max_depth, const std::filesystem::path& source) {
  using nlohmann::json;
  std::vector<std::unordered_set<std::string>> keys_at(static_cast<size_t>(max_depth) + 1);
  const auto watch = [&](int depth, json::parse_event_t event, json& parsed) {
    switch (event) {
      case json::parse_event_t::object_start:
      case json::parse_event_t::array_start:
        if (depth >= max_depth) throw IoError(source.string() + ": its JSON is nested too deeply; it is broken");
        keys_at[static_cast<size_t>(depth) + 1].clear();
        break;
      case json::parse_event_t::key:
        if (!keys_at[static_cast<size_t>(depth)].insert(parsed.get<std::string>()).second) {
          throw IoError(source.string() + ": the name " + in_quotes(parsed.get<std::string>()) + " stands twice");
        }
        break;
      default:
        break;
    }
    return true;
  };
  try {
    return json::parse(text.begin(), text.end(), watch);
  } catch (const json::parse_error& error) {
    throw IoError(source.string() + ": its JSON is broken at byte " + std::to_string(error.byte));
  } catch (const json::exception&) {
    throw IoError(source.string() + ": its JSON holds a number that cannot be represented");
  }
}

std::string in_quotes(std::string_view text) {
  constexpr size_t kLongest = 200;
  std::string out = "'";
  for (const char c : text.substr(0, kLongest)) out += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
  return out + (text.size() > kLongest ? "...'" : "'");
}

}  // namespace tandem
