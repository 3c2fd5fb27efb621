// Reads what has been added to a file of lines since the last time, while another process writes it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

namespace tandem {

// Not thread-safe. An unfinished last line waits for its end. A file that was cut, replaced or removed is noticed by
// its inode, its size and the bytes read last, and read from its start again.
class LineTail {
 public:
  explicit LineTail(std::filesystem::path path) : path_(std::move(path)) {}

  struct Handler {
    std::function<void()> on_restart;                                     // what was handed out before no longer holds
    std::function<void(std::string_view line, uint64_t offset)> on_line;  // without its line break
  };
  // Stops after the line with which `max_bytes` are read. True: there may be more.
  bool read(size_t max_bytes, const Handler& handler);

  uint64_t offset() const { return offset_; }  // of the first byte not handed out yet

 private:
  bool is_same_file(int fd, ino_t inode, uint64_t size) const;
  void remember(std::string_view consumed);

  std::filesystem::path path_;
  uint64_t offset_ = 0;
  ino_t inode_ = 0;
  std::string last_;  // the last bytes before offset_
};

// `size` bytes of a file from `offset`; fewer at its end, none where it cannot be read.
std::string read_part(const std::filesystem::path& path, uint64_t offset, size_t size);

}  // namespace tandem
