// JSON of untrusted files: no key twice in an object (parsers disagree on which one wins), no deep nesting.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace tandem {

// `max_depth` counts nested objects and arrays. IoError, naming `source`, for text that is not one JSON value.
nlohmann::json parse_strict_json(std::string_view text, int max_depth, const std::filesystem::path& source);

// For error texts: in quotes, on one line, cut when long.
std::string in_quotes(std::string_view text);

}  // namespace tandem
