// Memory that other processes of this machine can map too. It goes when the last of them is gone, however that ends:
// there is no name that could be left behind.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace tandem {

class SharedMemory {
 public:
  explicit SharedMemory(size_t bytes);  // zeros, which take no memory until they are written
  // What another process (or this one) made; `path` is its path(), good while the maker holds it. IoError where it is
  // not there, or has another size.
  static SharedMemory open(const std::string& path, size_t bytes);

  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  ~SharedMemory();

  std::string path() const;
  std::span<std::byte> bytes() const { return {data_, size_}; }

 private:
  SharedMemory(int descriptor, size_t bytes, const std::string& name);

  int descriptor_ = -1;
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace tandem
