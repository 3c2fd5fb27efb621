// A file that only grows, by whole records.
#pragma once

#include <filesystem>
#include <string_view>

namespace tandem {

// Not thread-safe. A record is handed to the system in one write(2), so that a kill leaves at most its last record
// unfinished; where the write fails (a full disk), what was written of the record is taken back. Folders are made as
// needed. Errors are IoError naming the file.
class AppendFile {
 public:
  explicit AppendFile(const std::filesystem::path& path);
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;
  ~AppendFile();
  void append(std::string_view record);

 private:
  std::filesystem::path path_;
  int fd_ = -1;
};

}  // namespace tandem
