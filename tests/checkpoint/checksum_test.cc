#include "checkpoint/checksum.h"

#include "base/error.h"
#include "checkpoint/scratch_folder.h"

namespace tandem {
namespace {

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

// The bytes 3, 10, 17, ... (mod 256).
std::string ramp(size_t length) {
  std::string text(length, '\0');
  for (size_t i = 0; i < length; ++i) text[i] = static_cast<char>(i * 7 + 3);
  return text;
}

// From the Python package xxhash (the reference C code), around every branch of the algorithm.
TEST(Checksum, AgreesWithTheReference) {
  const std::pair<size_t, uint64_t> cases[] = {
      {0, 0xef46db3751d8e999},   {1, 0x1f25c8d0bc1f4bb6},   {3, 0x31d2363f52e564c9},  {4, 0x9bb64b7d66ee9fda},
      {8, 0xdab99d95c6f90092},   {31, 0xa2aa5f33cc4a6119},  {32, 0x23c3c17ef790fd97}, {33, 0x50a7cfc7ba588784},
      {100, 0xa61f8d4c170fe531}, {1000, 0x5f235fa033f1a3fb}};
  for (const auto& [length, expected] : cases) EXPECT_EQ(xxh64(bytes_of(ramp(length))), expected) << length;
  EXPECT_EQ(xxh64(bytes_of("abc")), 0x44bc2cf5ad770999);
  EXPECT_EQ(xxh64(bytes_of("abc"), 2654435761), 0x1318df30094a85fd);
}

TEST(Checksum, PiecesGiveTheSameAsTheWhole) {
  const std::string text = ramp(1000);
  for (size_t piece : {1, 7, 31, 32, 33, 500}) {
    Xxh64 hash;
    for (size_t at = 0; at < text.size(); at += piece)
      hash.update(bytes_of(text).subspan(at).first(std::min(piece, text.size() - at)));
    EXPECT_EQ(hash.digest(), 0x5f235fa033f1a3fb) << piece;
  }
}

TEST(Checksum, OfAFile) {
  const ScratchFolder scratch;
  put(scratch / "x", ramp(1000));
  EXPECT_EQ(xxh64_file(scratch / "x"), 0x5f235fa033f1a3fb);
  expect_names(error_of<IoError>([&] { xxh64_file(scratch / "none"); }), {"none"});
}

}  // namespace
}  // namespace tandem
