#include "dashboard/line_tail.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace tandem {
namespace {

constexpr size_t kChunk = size_t{1} << 20;
constexpr size_t kRemembered = 128;

class OpenFile {
 public:
  explicit OpenFile(const std::filesystem::path& path) : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
  ~OpenFile() {
    if (fd_ >= 0) ::close(fd_);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_;
};

// Appends up to `size` bytes; the number read.
size_t append_at(int fd, uint64_t offset, size_t size, std::string& out) {
  const size_t before = out.size();
  out.resize(before + size);
  size_t got = 0;
  while (got < size) {
    const ssize_t n = ::pread(fd, out.data() + before + got, size - got, static_cast<off_t>(offset + got));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    got += static_cast<size_t>(n);
  }
  out.resize(before + got);
  return got;
}

}  // namespace

bool LineTail::is_same_file(int fd, ino_t inode, uint64_t size) const {
  if (offset_ == 0) return true;
  if (inode != inode_ || size < offset_) return false;
  std::string now;
  append_at(fd, offset_ - last_.size(), last_.size(), now);
  return now == last_;
}

void LineTail::remember(std::string_view consumed) {
  last_ += consumed.substr(consumed.size() - std::min(consumed.size(), kRemembered));
  if (last_.size() > kRemembered) last_.erase(0, last_.size() - kRemembered);
}

bool LineTail::read(size_t max_bytes, const Handler& handler) {
  const OpenFile file(path_);
  struct stat info {};
  const bool there = file.fd() >= 0 && ::fstat(file.fd(), &info) == 0;
  if (offset_ > 0 && (!there || !is_same_file(file.fd(), info.st_ino, static_cast<uint64_t>(info.st_size)))) {
    offset_ = 0;
    last_.clear();
    handler.on_restart();
  }
  if (!there) return false;
  inode_ = info.st_ino;
  std::string buffer;
  size_t consumed = 0;
  while (consumed < max_bytes) {
    if (append_at(file.fd(), offset_ + buffer.size(), kChunk, buffer) == 0) return false;
    const std::string_view text(buffer);
    size_t begin = 0;
    for (size_t end; (end = text.find('\n', begin)) != text.npos; begin = end + 1)
      handler.on_line(text.substr(begin, end - begin), offset_ + begin);
    remember(text.substr(0, begin));
    offset_ += begin;
    consumed += begin;
    buffer.erase(0, begin);
  }
  return true;
}

std::string read_part(const std::filesystem::path& path, uint64_t offset, size_t size) {
  const OpenFile file(path);
  std::string out;
  if (file.fd() >= 0) append_at(file.fd(), offset, size, out);
  return out;
}

}  // namespace tandem
