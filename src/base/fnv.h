// FNV-1a (Fowler, Noll, Vo), 64 bits: for fingerprints of what is kept, not against an adversary.
#pragma once

#include <cstdint>
#include <string_view>

namespace tandem {

constexpr uint64_t kFnvStart = 0xCBF29CE484222325;

constexpr uint64_t fnv1a(uint64_t hash, std::string_view bytes) {
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  return hash;
}

// The word's bytes, the lowest first.
constexpr uint64_t fnv1a(uint64_t hash, uint64_t word) {
  for (int byte = 0; byte < 8; ++byte) hash = (hash ^ (word >> (8 * byte) & 0xFF)) * 0x100000001B3;
  return hash;
}

}  // namespace tandem
