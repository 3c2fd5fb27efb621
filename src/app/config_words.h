// The words of a subcommand that takes YAML files and key=value overrides, in any order.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace tandem {

struct ConfigWords {
  std::vector<std::filesystem::path> files;
  std::vector<std::string> overrides;
};

inline ConfigWords split_words(const std::vector<std::string>& words) {
  ConfigWords out;
  for (const std::string& word : words) {
    const bool is_file = word.find('=') == std::string::npos && (word.ends_with(".yaml") || word.ends_with(".yml"));
    if (is_file) {
      out.files.emplace_back(word);
    } else {
      out.overrides.push_back(word);
    }
  }
  return out;
}

}  // namespace tandem
