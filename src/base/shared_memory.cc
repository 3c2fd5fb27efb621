#include "base/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace tandem {
namespace {

[[noreturn]] void fail_sharing(const char* verb, const std::string& name) {
  throw IoError(std::string("cannot ") + verb + " shared memory " + name + ": " + std::strerror(errno));
}

int made_descriptor(size_t bytes) {
  const int descriptor = ::memfd_create("tandem-state", MFD_CLOEXEC);
  if (descriptor < 0) fail_sharing("make", "for a state");
  if (::ftruncate(descriptor, static_cast<off_t>(bytes)) != 0) {
    ::close(descriptor);
    fail_sharing("size", "for a state");
  }
  return descriptor;
}

int opened_descriptor(const std::string& path, size_t bytes) {
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (descriptor < 0) fail_sharing("open", path);
  struct stat info {};
  const bool fits = ::fstat(descriptor, &info) == 0 && static_cast<size_t>(info.st_size) == bytes;
  if (fits) return descriptor;
  ::close(descriptor);
  throw IoError("shared memory " + path + " is not of " + std::to_string(bytes) +
                " bytes; the ranks of a run must be of one program");
}

}  // namespace

SharedMemory::SharedMemory(size_t bytes) : SharedMemory(made_descriptor(bytes), bytes, "for a state") {}

SharedMemory SharedMemory::open(const std::string& path, size_t bytes) {
  return {opened_descriptor(path, bytes), bytes, path};
}

SharedMemory::SharedMemory(int descriptor, size_t bytes, const std::string& name)
    : descriptor_(descriptor), size_(bytes) {
  if (bytes == 0) return;
  void* mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (mapped == MAP_FAILED) {
    ::close(descriptor);
    fail_sharing("map", name);
  }
  data_ = static_cast<std::byte*>(mapped);
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

SharedMemory::~SharedMemory() {
  if (data_ != nullptr) ::munmap(data_, size_);
  if (descriptor_ >= 0) ::close(descriptor_);
}

std::string SharedMemory::path() const {
  return "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(descriptor_);
}

}  // namespace tandem
