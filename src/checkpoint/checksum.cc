#include "checkpoint/checksum.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "base/error.h"

namespace tandem {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr uint64_t kPrime1 = 0x9E3779B185EBCA87, kPrime2 = 0xC2B2AE3D27D4EB4F, kPrime3 = 0x165667B19E3779F9,
                   kPrime4 = 0x85EBCA77C2B2AE63, kPrime5 = 0x27D4EB2F165667C5;
constexpr size_t kStripe = 32;
constexpr size_t kBlock = 1 << 20;

template <class T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

uint64_t round_of(uint64_t lane, uint64_t input) { return std::rotl(lane + input * kPrime2, 31) * kPrime1; }

uint64_t merge(uint64_t hash, uint64_t lane) { return (hash ^ round_of(0, lane)) * kPrime1 + kPrime4; }

void consume(std::array<uint64_t, 4>& lanes, const std::byte* stripe) {
  for (size_t i = 0; i < 4; ++i) lanes[i] = round_of(lanes[i], load<uint64_t>(stripe + 8 * i));
}

}  // namespace

Xxh64::Xxh64(uint64_t seed) : lanes_{seed + kPrime1 + kPrime2, seed + kPrime2, seed, seed - kPrime1}, seed_(seed) {}

void Xxh64::update(std::span<const std::byte> bytes) {
  const size_t held = length_ % kStripe;
  length_ += bytes.size();
  if (held != 0) {
    const auto taken = bytes.first(std::min(bytes.size(), kStripe - held));
    std::copy(taken.begin(), taken.end(), pending_.begin() + static_cast<std::ptrdiff_t>(held));
    bytes = bytes.subspan(taken.size());
    if (held + taken.size() < kStripe) return;
    consume(lanes_, pending_.data());
  }
  // Four scalar chains: the vector unit has no 64-bit product, and an array of lanes would be put there.
  uint64_t a = lanes_[0], b = lanes_[1], c = lanes_[2], d = lanes_[3];
  for (; bytes.size() >= kStripe; bytes = bytes.subspan(kStripe)) {
    a = round_of(a, load<uint64_t>(bytes.data()));
    b = round_of(b, load<uint64_t>(bytes.data() + 8));
    c = round_of(c, load<uint64_t>(bytes.data() + 16));
    d = round_of(d, load<uint64_t>(bytes.data() + 24));
  }
  lanes_ = {a, b, c, d};
  std::copy(bytes.begin(), bytes.end(), pending_.begin());
}

uint64_t Xxh64::digest() const {
  uint64_t hash = seed_ + kPrime5;
  if (length_ >= kStripe) {
    hash = std::rotl(lanes_[0], 1) + std::rotl(lanes_[1], 7) + std::rotl(lanes_[2], 12) + std::rotl(lanes_[3], 18);
    for (const uint64_t lane : lanes_) hash = merge(hash, lane);
  }
  hash += length_;
  const std::byte* at = pending_.data();
  size_t left = length_ % kStripe;
  for (; left >= 8; left -= 8, at += 8)
    hash = std::rotl(hash ^ round_of(0, load<uint64_t>(at)), 27) * kPrime1 + kPrime4;
  if (left >= 4) {
    hash = std::rotl(hash ^ load<uint32_t>(at) * kPrime1, 23) * kPrime2 + kPrime3;
    left -= 4, at += 4;
  }
  for (; left > 0; --left, ++at) hash = std::rotl(hash ^ static_cast<uint64_t>(*at) * kPrime5, 11) * kPrime1;
  hash = (hash ^ hash >> 33) * kPrime2;
  hash = (hash ^ hash >> 29) * kPrime3;
  return hash ^ hash >> 32;
}

uint64_t xxh64(std::span<const std::byte> bytes, uint64_t seed) {
  Xxh64 hash(seed);
  hash.update(bytes);
  return hash.digest();
}

uint64_t xxh64_file(const std::filesystem::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  Xxh64 hash;
  ssize_t n = fd < 0 ? -1 : 0;
  std::vector<std::byte> block(kBlock);
  while (fd >= 0 && ((n = ::read(fd, block.data(), block.size())) > 0 || (n < 0 && errno == EINTR)))
    if (n > 0) hash.update(std::span(block).first(static_cast<size_t>(n)));
  const int why = errno;
  if (fd >= 0) ::close(fd);
  if (n < 0) throw IoError("cannot read " + path.string() + ": " + std::strerror(why));
  return hash.digest();
}

}  // namespace tandem
