#include "preflight/system_files.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sstream>

#include "base/text.h"

namespace tandem {
namespace {

std::optional<int64_t> parse(std::string_view text, int base) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

std::filesystem::path SystemFiles::at(std::string_view absolute) const {
  return root_ / std::filesystem::path(absolute).relative_path();
}

// They have no size to map by.
std::optional<std::string> SystemFiles::read(std::string_view absolute) const {
  std::ifstream file(at(absolute));
  if (!file) return std::nullopt;
  std::ostringstream text;
  text << file.rdbuf();
  std::string all = text.str();
  all.erase(all.find_last_not_of(kWhiteSpace) + 1);
  return all;
}

std::optional<int64_t> SystemFiles::read_number(std::string_view absolute) const {
  const auto text = read(absolute);
  return text ? parse(*text, 10) : std::nullopt;
}

std::optional<int64_t> SystemFiles::read_hex(std::string_view absolute) const {
  const auto text = read(absolute);
  return text && text->starts_with("0x") ? parse(std::string_view(*text).substr(2), 16) : std::nullopt;
}

std::vector<std::string> SystemFiles::list(std::string_view absolute) const {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(at(absolute), error))
    names.push_back(entry.path().filename().string());
  std::ranges::sort(names);
  return names;
}

std::vector<std::string> split_lines(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

std::vector<std::string> split_blanks(std::string_view text) {
  std::vector<std::string> words;
  while (!(text = stripped(text)).empty()) {
    const size_t end = std::min(text.find_first_of(kWhiteSpace), text.size());
    words.emplace_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return words;
}

}  // namespace tandem
