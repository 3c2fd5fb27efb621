// Files as values: mapped for reading, written whole and atomically. Errors are IoError naming the path.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace tandem {

// A read-only mapping of a whole file; movable, unmapped on destruction. Safe to read from many threads.
class MappedFile {
 public:
  explicit MappedFile(const std::filesystem::path& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

std::string read_file(const std::filesystem::path& path);

// Writes to a temporary name beside `path`, fsyncs, renames: readers see the old file or the new one, never a part.
void write_file_atomic(const std::filesystem::path& path, std::string_view content);

// fsync of a file or folder already written.
void sync_path(const std::filesystem::path& path);

// "~/x" becomes "$HOME/x"; other paths are returned as they are.
std::filesystem::path expand_user(std::string_view path);

}  // namespace tandem
