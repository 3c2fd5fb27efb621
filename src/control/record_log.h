// A file of checksummed records that only grows, written by a process that may be killed at any time. Each record is
// 4 bytes "TJR1", its type (4 bytes), the payload's length (8), FNV-1a over type, length and payload (8), the payload;
// numbers are little-endian. Torch-free.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
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

// Payloads: fields one after the other as they lie in memory, lists behind their length.
class PayloadWriter {
 public:
  template <class T>
  PayloadWriter& put(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(T));
    return *this;
  }
  template <class List>
  PayloadWriter& put_list(const List& list) {
    put<uint64_t>(list.size());
    bytes_.append(reinterpret_cast<const char*>(list.data()), list.size() * sizeof(*list.data()));
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

// IoError where a payload is shorter than what is read from it.
class PayloadReader {
 public:
  explicit PayloadReader(std::span<const std::byte> bytes) : rest_(bytes) {}

  template <class T>
  T get() {
    T value;
    copy(&value, sizeof(T));
    return value;
  }
  template <class List>
  List get_list() {
    const auto count = get<uint64_t>();
    List list;
    using Element = std::remove_cvref_t<decltype(*list.data())>;
    require(count, sizeof(Element));
    list.resize(count);
    copy(list.data(), count * sizeof(Element));
    return list;
  }

 private:
  void require(uint64_t count, size_t element) const;
  void copy(void* to, size_t size);

  std::span<const std::byte> rest_;
};

}  // namespace tandem
