#include "base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace tandem {
namespace {

[[noreturn]] void fail_io(const char* verb, const std::filesystem::path& path) {
  throw IoError(std::string("cannot ") + verb + " " + path.string() + ": " + std::strerror(errno));
}

class Descriptor {
 public:
  Descriptor(const std::filesystem::path& path, int flags, const char* verb) : fd_(::open(path.c_str(), flags, 0644)) {
    if (fd_ < 0) fail_io(verb, path);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { ::close(fd_); }
  int get() const { return fd_; }

 private:
  int fd_;
};

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path) : path_(path) {
  const Descriptor file(path, O_RDONLY | O_CLOEXEC, "open");
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) fail_io("stat", path);
  if (S_ISDIR(info.st_mode)) throw IoError(path.string() + " is a folder, not a file");
  size_ = static_cast<size_t>(info.st_size);
  if (size_ == 0) return;
  void* mapped = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (mapped == MAP_FAILED) fail_io("map", path);
  data_ = static_cast<const std::byte*>(mapped);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

std::string read_file(const std::filesystem::path& path) {
  const MappedFile file(path);
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

void write_file_atomic(const std::filesystem::path& path, std::string_view content) {
  auto temporary = path;
  temporary += ".tmp." + std::to_string(::getpid());
  {
    const Descriptor file(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, "write");
    while (!content.empty()) {
      const ssize_t n = ::write(file.get(), content.data(), content.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) {
        const int why = errno;
        ::unlink(temporary.c_str());
        errno = why;
        fail_io("write", path);
      }
      content.remove_prefix(static_cast<size_t>(n));
    }
    if (::fsync(file.get()) != 0) fail_io("sync", temporary);
  }
  if (::rename(temporary.c_str(), path.c_str()) != 0) {
    const int why = errno;
    ::unlink(temporary.c_str());
    errno = why;
    fail_io("rename to", path);
  }
  sync_path(path.has_parent_path() ? path.parent_path() : std::filesystem::path("."));
}

void sync_path(const std::filesystem::path& path) {
  const Descriptor file(path, O_RDONLY | O_CLOEXEC, "open");
  if (::fsync(file.get()) != 0) fail_io("sync", path);
}

std::filesystem::path expand_user(std::string_view path) {
  const char* home = std::getenv("HOME");
  if (path.starts_with("~/") && home != nullptr) return std::filesystem::path(home) / path.substr(2);
  return std::filesystem::path(path);
}

}  // namespace tandem
