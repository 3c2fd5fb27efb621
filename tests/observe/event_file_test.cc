#include "observe/event_file.h"

#include <gtest/gtest.h>

#include <cstring>
#include <ctime>
#include <map>
#include <vector>

#include "temp_folder.h"

namespace tandem {
namespace {

// A decoder of the format written apart from the encoder: bit-wise CRC, fields by number.
uint32_t bitwise_crc32c(const std::string& data) {
  uint32_t crc = 0xFFFFFFFF;
  for (const unsigned char byte : data) {
    crc ^= byte;
    for (int i = 0; i < 8; ++i) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82F63B78 : 0);
  }
  return crc ^ 0xFFFFFFFF;
}

uint32_t masked(const std::string& data) {
  const uint32_t crc = bitwise_crc32c(data);
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8;
}

template <class T>
T take(std::string& bytes) {
  T value{};
  if (bytes.size() < sizeof(T)) throw std::runtime_error("cut");
  std::memcpy(&value, bytes.data(), sizeof(T));  // x86 and arm are little-endian like the format
  bytes.erase(0, sizeof(T));
  return value;
}

std::vector<std::string> read_records(std::string bytes) {
  std::vector<std::string> records;
  while (!bytes.empty()) {
    const std::string head = bytes.substr(0, 8);
    const auto length = take<uint64_t>(bytes);
    if (take<uint32_t>(bytes) != masked(head)) throw std::runtime_error("checksum of the length");
    records.push_back(bytes.substr(0, length));
    bytes.erase(0, length);
    if (take<uint32_t>(bytes) != masked(records.back())) throw std::runtime_error("checksum of the data");
  }
  return records;
}

struct Field {
  uint64_t number = 0;  // of a varint, or the bits of a fixed-size value
  std::string bytes;
};

uint64_t take_varint(std::string& bytes) {
  uint64_t value = 0;
  for (int shift = 0;; shift += 7) {
    const auto byte = take<unsigned char>(bytes);
    value |= static_cast<uint64_t>(byte & 0x7F) << shift;
    if (byte < 0x80) return value;
  }
}

std::multimap<int, Field> read_message(std::string bytes) {
  std::multimap<int, Field> fields;
  while (!bytes.empty()) {
    const uint64_t tag = take_varint(bytes);
    Field field;
    switch (tag & 7) {
      case 0:
        field.number = take_varint(bytes);
        break;
      case 1:
        field.number = take<uint64_t>(bytes);
        break;
      case 5:
        field.number = take<uint32_t>(bytes);
        break;
      case 2: {
        const uint64_t length = take_varint(bytes);
        field.bytes = bytes.substr(0, length);
        bytes.erase(0, length);
        break;
      }
      default:
        throw std::runtime_error("wire type");
    }
    fields.emplace(static_cast<int>(tag >> 3), field);
  }
  return fields;
}

std::string only_file(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) files.push_back(entry.path());
  EXPECT_EQ(files.size(), 1u);
  EXPECT_EQ(files[0].filename().string().rfind("events.out.tfevents.", 0), 0u);
  return slurp(files[0]);
}

TEST(EventFile, Crc32cOfRfc3720) {
  EXPECT_EQ(crc32c("123456789"), 0xE3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAu);
  EXPECT_EQ(crc32c(std::string(32, '\xFF')), 0x62A8AB43u);
  EXPECT_EQ(crc32c(""), 0u);
}

TEST(EventFile, StartsWithItsVersion) {
  const TempFolder folder;
  const EventFile file(folder.path());
  const auto records = read_records(only_file(folder.path()));
  ASSERT_EQ(records.size(), 1u);
  const auto event = read_message(records[0]);
  EXPECT_EQ(event.find(3)->second.bytes, "brain.Event:2");
  double wall_time = 0;
  std::memcpy(&wall_time, &event.find(1)->second.number, sizeof(wall_time));
  EXPECT_NEAR(wall_time, static_cast<double>(std::time(nullptr)), 5);
}

TEST(EventFile, ScalarsOfAStep) {
  const TempFolder folder;
  EventFile file(folder.path());
  Metrics metrics;
  metrics.set("actor/pg_loss", -0.125);
  metrics.set(std::string(200, 'x'), 3);  // lengths that need two bytes
  file.add_scalars(300, metrics);
  const auto records = read_records(only_file(folder.path()));
  ASSERT_EQ(records.size(), 2u);
  const auto event = read_message(records[1]);
  EXPECT_EQ(event.find(2)->second.number, 300u);
  const auto summary = read_message(event.find(5)->second.bytes);
  std::vector<std::pair<std::string, float>> scalars;
  for (const auto& [number, value] : summary) {
    EXPECT_EQ(number, 1);
    const auto fields = read_message(value.bytes);
    float scalar = 0;
    std::memcpy(&scalar, &fields.find(2)->second.number, sizeof(scalar));
    scalars.emplace_back(fields.find(1)->second.bytes, scalar);
  }
  EXPECT_EQ(scalars,
            (std::vector<std::pair<std::string, float>>{{"actor/pg_loss", -0.125f}, {std::string(200, 'x'), 3}}));
}

TEST(EventFile, ASessionStartTellsReadersWhatToForget) {
  const TempFolder folder;
  EventFile file(folder.path());
  file.start_session(11);
  const auto records = read_records(only_file(folder.path()));
  const auto event = read_message(records.at(1));
  EXPECT_EQ(event.find(2)->second.number, 11u);
  EXPECT_EQ(read_message(event.find(7)->second.bytes).find(1)->second.number, 1u);
}

}  // namespace
}  // namespace tandem
