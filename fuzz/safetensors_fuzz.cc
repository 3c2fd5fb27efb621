// Any bytes are either a file whose tensors tile it exactly, or an IoError.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <string>

#include "base/error.h"
#include "checkpoint/safetensors.h"

namespace {

// A file in memory, under a path.
class MemoryFile {
 public:
  MemoryFile(const uint8_t* data, size_t size) : fd_(::memfd_create("fuzz", MFD_CLOEXEC)) {
    tandem::check(fd_ >= 0 && ::write(fd_, data, size) == static_cast<ssize_t>(size), "the input is written");
  }
  ~MemoryFile() { ::close(fd_); }
  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }

 private:
  int fd_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const MemoryFile input(data, size);
  try {
    const tandem::SafetensorsFile file(input.path());
    size_t total = 0;
    unsigned sum = 0;
    for (const auto& tensor : file.tensors()) {
      const tandem::TensorSpec spec{tensor.name, tensor.dtype, tensor.shape};
      tandem::check(spec.num_bytes() == tensor.bytes.size(), "shape and bytes agree");
      tandem::check(file.find(tensor.name) == &tensor, "a tensor is found by its name");
      for (const auto byte : tensor.bytes) sum += static_cast<unsigned>(byte);
      total += tensor.bytes.size();
    }
    tandem::check(total + 8 <= size && sum <= 255 * total, "the tensors lie within the file");
  } catch (const tandem::IoError&) {
  }
  return 0;
}
