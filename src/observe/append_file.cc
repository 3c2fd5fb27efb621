#include "observe/append_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>

#include "base/error.h"

namespace tandem {

AppendFile::AppendFile(const std::filesystem::path& path) : path_(path) {
  std::error_code why;
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path(), why);
  if (why) throw IoError("cannot make the folder " + path.parent_path().string() + ": " + why.message());
  fd_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd_ < 0) throw IoError("cannot write " + path.string() + ": " + std::strerror(errno));
}

AppendFile::~AppendFile() { ::close(fd_); }

void AppendFile::append(std::string_view record) {
  const off_t start = ::lseek(fd_, 0, SEEK_END);
  while (!record.empty()) {
    const ssize_t n = ::write(fd_, record.data(), record.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      const int why = errno;
      const bool taken_back = start < 0 || ::ftruncate(fd_, start) == 0;
      throw IoError("cannot write " + path_.string() + ": " + std::strerror(why) +
                    (taken_back ? "" : "; its last record is unfinished"));
    }
    record.remove_prefix(static_cast<size_t>(n));
  }
}

}  // namespace tandem
