#include "checkpoint/safetensors.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "checkpoint/strict_json.h"

namespace tandem {
namespace {

using nlohmann::json;

struct DTypeInfo {
  DType dtype;
  std::string_view name;
  size_t size;
};

constexpr std::array kDTypes = {DTypeInfo{DType::kBool, "BOOL", 1},      DTypeInfo{DType::kU8, "U8", 1},
                                DTypeInfo{DType::kI8, "I8", 1},          DTypeInfo{DType::kF8E5M2, "F8_E5M2", 1},
                                DTypeInfo{DType::kF8E4M3, "F8_E4M3", 1}, DTypeInfo{DType::kI16, "I16", 2},
                                DTypeInfo{DType::kU16, "U16", 2},        DTypeInfo{DType::kF16, "F16", 2},
                                DTypeInfo{DType::kBF16, "BF16", 2},      DTypeInfo{DType::kI32, "I32", 4},
                                DTypeInfo{DType::kU32, "U32", 4},        DTypeInfo{DType::kF32, "F32", 4},
                                DTypeInfo{DType::kF64, "F64", 8},        DTypeInfo{DType::kI64, "I64", 8},
                                DTypeInfo{DType::kU64, "U64", 8}};

const DTypeInfo& info_of(DType dtype) { return kDTypes[static_cast<size_t>(dtype)]; }

constexpr size_t kLengthField = 8;
constexpr size_t kMaxHeader = 100'000'000;  // the format's own limit
constexpr int kHeaderDepth = 3;             // file, tensor, shape

[[noreturn]] void fail(const std::filesystem::path& path, const std::string& what) {
  throw IoError(path.string() + ": " + what);
}

[[noreturn]] void fail_short(const std::filesystem::path& path, size_t have, const std::string& need) {
  fail(path, "the file is shorter than its header says (" + std::to_string(have) + " bytes, " + need +
                 "); it was cut short: download or save it again");
}

std::string_view header_text(const MappedFile& file) {
  const auto bytes = file.bytes();
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text.starts_with("version https://git-lfs"))
    fail(file.path(), "is a Git LFS pointer, not the weights; run `git lfs pull`");
  if (bytes.size() < kLengthField) fail_short(file.path(), bytes.size(), "not even the header's length");
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), kLengthField);
  if (length > bytes.size() - kLengthField)
    fail_short(file.path(), bytes.size(), "a header of " + std::to_string(length) + " announced");
  if (length > kMaxHeader) fail(file.path(), "its header of " + std::to_string(length) + " bytes is over the limit");
  const auto header = text.substr(kLengthField, length);
  if (!header.starts_with('{')) fail(file.path(), "is not a safetensors file: its header is not a JSON object");
  return header;
}

// A whole number that fits int64, or nothing.
std::optional<int64_t> whole_number(const json& value) {
  if (!value.is_number_unsigned() || value.get<uint64_t>() > INT64_MAX) return std::nullopt;
  return static_cast<int64_t>(value.get<uint64_t>());
}

std::optional<std::vector<int64_t>> whole_numbers(const json& list) {
  if (!list.is_array()) return std::nullopt;
  std::vector<int64_t> numbers;
  for (const auto& item : list) {
    const auto number = whole_number(item);
    if (!number) return std::nullopt;
    numbers.push_back(*number);
  }
  return numbers;
}

struct Range {
  size_t begin, end;
};

struct Entry {
  TensorSpec spec;
  Range range;
};

Entry parse_entry(const std::string& name, const json& entry, const std::filesystem::path& path) {
  const auto broken = [&](const std::string& what) { fail(path, "tensor " + in_quotes(name) + ": " + what); };
  if (!entry.is_object()) broken("its entry is not an object");
  for (const char* key : {"dtype", "shape", "data_offsets"})
    if (!entry.contains(key)) broken(std::string("its entry lacks '") + key + "'");

  Entry parsed;
  parsed.spec.name = name;
  const auto& dtype = entry["dtype"];
  const auto known =
      std::find_if(kDTypes.begin(), kDTypes.end(), [&](const auto& info) { return dtype == json(info.name); });
  if (known == kDTypes.end()) broken("its type " + in_quotes(dtype.dump()) + " is not supported");
  parsed.spec.dtype = known->dtype;

  const auto shape = whole_numbers(entry["shape"]);
  if (!shape) broken("its shape is not a list of whole numbers");
  parsed.spec.shape = *shape;
  const auto offsets = whole_numbers(entry["data_offsets"]);
  if (!offsets || offsets->size() != 2 || (*offsets)[0] > (*offsets)[1])
    broken("its data_offsets are not two ascending whole numbers");
  parsed.range = {static_cast<size_t>((*offsets)[0]), static_cast<size_t>((*offsets)[1])};

  size_t need = 0;
  try {
    need = parsed.spec.num_bytes();
  } catch (const IoError& error) {
    fail(path, error.what());
  }
  const size_t have = parsed.range.end - parsed.range.begin;
  if (need != have) {
    broken("shape " + shape_text(parsed.spec.shape) + " of " + std::string(known->name) + " needs " +
           std::to_string(need) + " bytes, its data_offsets hold " + std::to_string(have));
  }
  return parsed;
}

Metadata parse_metadata(const json& object, const std::filesystem::path& path) {
  if (!object.is_object()) fail(path, "__metadata__ is not an object");
  Metadata metadata;
  for (const auto& [key, value] : object.items()) {
    if (!value.is_string()) fail(path, "__metadata__ " + in_quotes(key) + " is not a text");
    metadata[key] = value.get<std::string>();
  }
  return metadata;
}

// Tensors must tile the data exactly: an overlap would alias weights, a hole could hide bytes.
void check_tiling(const std::vector<Entry>& entries, size_t data_size, size_t file_size,
                  const std::filesystem::path& path) {
  size_t end = 0;
  for (const auto& entry : entries) {
    if (entry.range.begin != end)
      fail(path, "tensor " + in_quotes(entry.spec.name) + " does not start where the one before it ends");
    end = entry.range.end;
  }
  if (end > data_size) fail_short(path, file_size, "tensors up to " + std::to_string(file_size - data_size + end));
  if (end < data_size)
    fail(path, "holds " + std::to_string(data_size - end) + " bytes after the last tensor; it is broken");
}

void drop_pages(std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(bytes.data()) & ~(page - 1);
  const auto end = reinterpret_cast<uintptr_t>(bytes.data() + bytes.size());
  ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);  // a hint: failing costs only memory
}

}  // namespace

size_t dtype_size(DType dtype) { return info_of(dtype).size; }

std::string_view dtype_name(DType dtype) { return info_of(dtype).name; }

std::string shape_text(std::span<const int64_t> shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  return text + "]";
}

size_t TensorSpec::num_bytes() const {
  int64_t bytes = static_cast<int64_t>(dtype_size(dtype));
  for (const int64_t dim : shape) {
    if (dim < 0 || __builtin_mul_overflow(bytes, dim, &bytes))
      throw IoError("tensor " + in_quotes(name) + ": shape " + shape_text(shape) + " is impossible");
  }
  return static_cast<size_t>(bytes);
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : file_(path) {
  const auto text = header_text(file_);
  const json header = parse_strict_json(text, kHeaderDepth, path);
  std::vector<Entry> entries;
  for (const auto& [name, value] : header.items()) {
    if (name == "__metadata__") {
      metadata_ = parse_metadata(value, path);
    } else {
      entries.push_back(parse_entry(name, value, path));
    }
  }
  std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::pair(a.range.begin, a.range.end) < std::pair(b.range.begin, b.range.end);
  });
  const auto data = file_.bytes().subspan(kLengthField + text.size());
  check_tiling(entries, data.size(), file_.bytes().size(), path);
  tensors_.reserve(entries.size());
  for (auto& [spec, range] : entries) {
    tensors_.push_back(
        {std::move(spec.name), spec.dtype, std::move(spec.shape), data.subspan(range.begin, range.end - range.begin)});
  }
  for (size_t i = 0; i < tensors_.size(); ++i) by_name_.emplace(tensors_[i].name, i);
}

const TensorView* SafetensorsFile::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &tensors_[found->second];
}

void SafetensorsFile::release(const TensorView& tensor) const { drop_pages(tensor.bytes); }

void SafetensorsFile::release() const { drop_pages(file_.bytes()); }

}  // namespace tandem
