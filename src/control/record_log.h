// A file of checksummed records that only grows, written by a process that may be killed at any time. Each record is
// 4 bytes "TJR1", its type (4 bytes), the payload's length (8), FNV-1a over type, length and payload (8), the payload;
// numbers are little-endian. Torch-free.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string_view>

#include "observe/append_file.h"

namespace tandem {

// Not thread-safe. Errors are AppendFile's.
class RecordWriter {
 public:
  // `size`: of the whole records already in the file.
  RecordWriter(const std::filesystem::path& path, uint64_t size) : file_(path), path_(path), size_(size) {}

  uint64_t append(uint32_t type, std::string_view payload);  // where the payload begins; in the system's hands
  void sync();                                               // on disk
  uint64_t size() const { return size_; }

 private:
  AppendFile file_;
  std::filesystem::path path_;
  uint64_t size_;
};

struct RecordScan {
  uint64_t whole_bytes = 0;    // up to the end of the last whole record
  uint64_t torn_bytes = 0;     // after it: what a kill left unfinished
  uint64_t damaged_bytes = 0;  // before it: bytes that changed since they were written
};

// Calls `found` for every whole record, in order. Damaged ones are stepped over. IoError when the file cannot be read.
RecordScan scan_records(
    const std::filesystem::path& path,
    const std::function<void(uint32_t type, std::span<const std::byte> payload, uint64_t offset)>& found);

}  // namespace tandem
