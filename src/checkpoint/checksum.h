// XXH64 (Yann Collet, xxHash specification 0.1.1): not cryptographic; finds flipped bits and torn writes at the speed
// of memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

namespace tandem {

class Xxh64 {
 public:
  explicit Xxh64(uint64_t seed = 0);
  void update(std::span<const std::byte> bytes);
  uint64_t digest() const;

 private:
  std::array<uint64_t, 4> lanes_;
  std::array<std::byte, 32> pending_{};
  uint64_t seed_, length_ = 0;
};

uint64_t xxh64(std::span<const std::byte> bytes, uint64_t seed = 0);

// Reads in blocks, so a file of any size needs one block of memory. IoError when it cannot be read.
uint64_t xxh64_file(const std::filesystem::path& path);

}  // namespace tandem
