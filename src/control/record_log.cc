#include "control/record_log.h"

#include <cstring>

#include "base/error.h"
#include "base/file.h"
#include "base/fnv.h"

namespace tandem {
namespace {

constexpr std::string_view kMagic = "TJR1";

struct Frame {
  char magic[4];
  uint32_t type;
  uint64_t length, checksum;
};
static_assert(sizeof(Frame) == 24);

uint64_t checksum_of(uint32_t type, std::string_view payload) {
  return fnv1a(fnv1a(fnv1a(kFnvStart, uint64_t{type}), uint64_t{payload.size()}), payload);
}

// The frame at the start of `bytes`, where a whole record stands there.
const Frame* whole_record(std::string_view bytes, Frame& frame) {
  if (bytes.size() < sizeof(Frame) || !bytes.starts_with(kMagic)) return nullptr;
  std::memcpy(&frame, bytes.data(), sizeof(Frame));
  if (frame.length > bytes.size() - sizeof(Frame)) return nullptr;
  return checksum_of(frame.type, bytes.substr(sizeof(Frame), frame.length)) == frame.checksum ? &frame : nullptr;
}

}  // namespace

uint64_t RecordWriter::append(uint32_t type, std::string_view payload) {
  Frame frame{{'T', 'J', 'R', '1'}, type, payload.size(), checksum_of(type, payload)};
  std::string record(reinterpret_cast<const char*>(&frame), sizeof(Frame));
  record.append(payload);
  file_.append(record);
  const uint64_t at = size_ + sizeof(Frame);
  size_ += record.size();
  return at;
}

void RecordWriter::sync() { sync_path(path_); }

RecordScan scan_records(
    const std::filesystem::path& path,
    const std::function<void(uint32_t type, std::span<const std::byte> payload, uint64_t offset)>& found) {
  const MappedFile file(path);
  const std::string_view all(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  RecordScan scan;
  Frame frame;
  for (size_t at = 0; at < all.size();) {
    if (whole_record(all.substr(at), frame) == nullptr) {
      at = all.find(kMagic, at + 1);  // the next record, if what is here was damaged
      if (at == all.npos) break;
      continue;
    }
    scan.damaged_bytes += at - scan.whole_bytes;
    const size_t payload = at + sizeof(Frame);
    found(frame.type, file.bytes().subspan(payload, frame.length), payload);
    at = scan.whole_bytes = payload + frame.length;
  }
  scan.torn_bytes = all.size() - scan.whole_bytes;
  return scan;
}

}  // namespace tandem
