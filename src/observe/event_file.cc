#include "observe/event_file.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <bit>
#include <chrono>

namespace tandem {
namespace {

constexpr std::array<uint32_t, 256> kCrcTable = [] {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (crc & 1 ? 0x82F63B78u : 0u);
    table[byte] = crc;
  }
  return table;
}();

uint32_t masked_crc(std::string_view data) { return std::rotr(crc32c(data), 15) + 0xA282EAD8u; }

template <class Unsigned>
void append_little_endian(std::string& out, Unsigned value) {
  for (size_t i = 0; i < sizeof(value); ++i) out += static_cast<char>(value >> (8 * i) & 0xFF);
}

// Protobuf's wire format: a tag is field << 3 | type; types used here are varint (0), 64 bit (1), bytes (2), 32 bit
// (5).
void append_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

void append_integer(std::string& out, uint32_t field, int64_t value) {
  append_varint(out, field << 3 | 0);
  append_varint(out, static_cast<uint64_t>(value));
}

void append_double(std::string& out, uint32_t field, double value) {
  append_varint(out, field << 3 | 1);
  append_little_endian(out, std::bit_cast<uint64_t>(value));
}

void append_float(std::string& out, uint32_t field, float value) {
  append_varint(out, field << 3 | 5);
  append_little_endian(out, std::bit_cast<uint32_t>(value));
}

void append_bytes(std::string& out, uint32_t field, std::string_view bytes) {
  append_varint(out, field << 3 | 2);
  append_varint(out, bytes.size());
  out += bytes;
}

// Event: wall_time = 1, step = 2, file_version = 3, summary = 5, session_log = 7.
std::string event(int64_t step) {
  const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
  std::string out;
  append_double(out, 1, now.count());
  append_integer(out, 2, step);
  return out;
}

// The counter keeps two files of one process and second apart.
std::string file_name() {
  static std::atomic<int> count = 0;
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) host = {"localhost"};
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return "events.out.tfevents." + std::to_string(std::chrono::duration_cast<std::chrono::seconds>(now).count()) + '.' +
         host.data() + '.' + std::to_string(::getpid()) + '.' + std::to_string(count++);
}

}  // namespace

uint32_t crc32c(std::string_view data) {
  uint32_t crc = ~0u;
  for (const char c : data) crc = kCrcTable[(crc ^ static_cast<unsigned char>(c)) & 0xFF] ^ (crc >> 8);
  return ~crc;
}

std::string tfrecord(std::string_view data) {
  std::string out;
  append_little_endian(out, static_cast<uint64_t>(data.size()));
  append_little_endian(out, masked_crc(out));
  out += data;
  append_little_endian(out, masked_crc(data));
  return out;
}

EventFile::EventFile(const std::filesystem::path& folder) : file_(folder / file_name()) {
  std::string first = event(0);
  append_bytes(first, 3, "brain.Event:2");
  file_.append(tfrecord(first));
}

void EventFile::start_session(int64_t first_step) {
  std::string session;
  append_integer(session, 1, 1);  // SessionLog.status = START
  std::string start = event(first_step);
  append_bytes(start, 7, session);
  file_.append(tfrecord(start));
}

void EventFile::add_scalars(int64_t step, const Metrics& metrics) {
  std::string summary;
  for (const Metric& metric : metrics) {
    std::string value;
    append_bytes(value, 1, metric.name);
    append_float(value, 2, static_cast<float>(metric.value));
    append_bytes(summary, 1, value);
  }
  std::string scalars = event(step);
  append_bytes(scalars, 5, summary);
  file_.append(tfrecord(scalars));
}

}  // namespace tandem
