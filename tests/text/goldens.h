// Goldens of tools/references/make_text_goldens.py: what Python's tokenizers and transformers give.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/file.h"

namespace tandem {

inline std::filesystem::path text_data(std::string_view name) {
  return std::filesystem::path(TANDEM_TEST_DATA) / "text" / name;
}

inline nlohmann::ordered_json read_goldens(std::string_view name) {
  return nlohmann::ordered_json::parse(read_file(text_data(name)));
}

// The demo model's folder: $TANDEM_DEMO_MODEL, else its place in the cache. May not exist.
inline std::filesystem::path demo_model() {
  if (const char* folder = std::getenv("TANDEM_DEMO_MODEL")) return folder;
  return expand_user("~/.cache/tandem/models/SmolLM2-135M-Instruct");
}

inline std::string from_base64(std::string_view text) {
  constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  unsigned bits = 0, count = 0;
  for (const char c : text.substr(0, text.find('='))) {
    bits = bits << 6 | static_cast<unsigned>(kAlphabet.find(c));
    count += 6;
    if (count >= 8) bytes += static_cast<char>(bits >> (count -= 8) & 0xFF);
  }
  return bytes;
}

}  // namespace tandem
