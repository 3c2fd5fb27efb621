// The kernel's files (/proc, /sys) below a root that tests put their own trees in the place of.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tandem {

class SystemFiles {
 public:
  explicit SystemFiles(std::filesystem::path root = "/") : root_(std::move(root)) {}

  std::filesystem::path at(std::string_view absolute) const;
  // Without white space at the end; nothing where there is no such file.
  std::optional<std::string> read(std::string_view absolute) const;
  std::optional<int64_t> read_number(std::string_view absolute) const;  // also nothing for what is no whole number
  std::optional<int64_t> read_hex(std::string_view absolute) const;     // "0x10de"
  std::vector<std::string> list(std::string_view absolute) const;       // names in a folder, sorted

 private:
  std::filesystem::path root_;
};

// Lines, without their ends.
std::vector<std::string> split_lines(std::string_view text);
// Words between white space.
std::vector<std::string> split_blanks(std::string_view text);

}  // namespace tandem
