// Weights on disk in the safetensors format (github.com/huggingface/safetensors: 8-byte little-endian header length,
// JSON header, tensor bytes). Torch-free: a tensor is a name, a type, a shape and bytes. Files are mapped, never read
// into memory as a whole. Every fault of a file is an IoError that names the file and, where there is one, the tensor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/file.h"
#include "checkpoint/write_pace.h"

namespace tandem {

// In the order in which the format's own writer ranks them: files hold the greatest type first, then names ascending.
enum class DType { kBool, kU8, kI8, kF8E5M2, kF8E4M3, kI16, kU16, kF16, kBF16, kI32, kU32, kF32, kF64, kI64, kU64 };

size_t dtype_size(DType dtype);                          // bytes of one element
std::string_view dtype_name(DType dtype);                // as in the header: "BF16"
std::string shape_text(std::span<const int64_t> shape);  // "[64, 128]"

struct TensorSpec {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;  // empty: a scalar

  size_t num_bytes() const;  // IoError when the product does not fit
};

// Valid as long as the file or memory that holds the bytes. Bytes are row-major, little-endian and, in files of other
// writers, possibly not aligned to the element size.
struct TensorView {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;
};

using Metadata = std::map<std::string, std::string>;

// A mapped file whose header was validated completely by the constructor. Safe to read from many threads.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);

  const std::vector<TensorView>& tensors() const { return tensors_; }  // in the order of their bytes
  const TensorView* find(std::string_view name) const;                 // nullptr when absent
  const Metadata& metadata() const { return metadata_; }
  const std::filesystem::path& path() const { return file_.path(); }

  // The pages of a tensor (all pages) that were copied elsewhere need not stay resident; reading them again is still
  // allowed and reads the disk.
  void release(const TensorView& tensor) const;
  void release() const;

 private:
  MappedFile file_;
  std::vector<TensorView> tensors_;
  std::unordered_map<std::string_view, size_t> by_name_;  // keys point into tensors_
  Metadata metadata_;
};

// A model's weights: `model.safetensors`, or the shards that `model.safetensors.index.json` names. Where the index is
// present only the files it names are opened. Missing shards, and tensors that the index places in a file which does
// not hold them, are reported by the constructor.
class WeightFolder {
 public:
  explicit WeightFolder(const std::filesystem::path& folder);

  const std::vector<std::string>& names() const { return names_; }  // ascending
  bool contains(std::string_view name) const { return place_.contains(std::string(name)); }
  TensorView get(std::string_view name) const;                        // IoError when absent
  const std::filesystem::path& file_of(std::string_view name) const;  // IoError when absent
  const std::filesystem::path& path() const { return folder_; }
  void release(std::string_view name) const;
  void release() const;

 private:
  struct Place {
    size_t file, tensor;
  };
  void open_indexed(const std::filesystem::path& index);
  const Place& place(std::string_view name) const;

  std::filesystem::path folder_;
  std::vector<SafetensorsFile> files_;
  std::vector<std::string> names_;
  std::unordered_map<std::string, Place> place_;
};

// Returns the bytes of a tensor; called once a tensor, in the order of the file. The span need only stay valid until
// the next call, so one staging buffer serves a whole model.
using FetchBytes = std::function<std::span<const std::byte>(const TensorSpec&)>;

// Writes under a temporary name, fsyncs and renames; on failure (a full disk included) nothing is left behind. The
// file is byte for byte what the Python package writes for the same tensors. Metadata defaults to what transformers
// expects: {"format": "pt"}. `pace` may be null.
void write_safetensors(const std::filesystem::path& path, std::vector<TensorSpec> tensors, const FetchBytes& fetch,
                       const Metadata& metadata = {{"format", "pt"}}, WritePace* pace = nullptr);
void write_safetensors(const std::filesystem::path& path, std::span<const TensorView> tensors,
                       const Metadata& metadata = {{"format", "pt"}});

// `model.safetensors`, or shards of at most `max_shard_bytes` (a larger tensor has a shard of its own) plus the index.
// Tensors are put into shards by ascending name. The folder is made when absent.
inline constexpr size_t kDefaultShardBytes = 5'000'000'000;
void write_weight_folder(const std::filesystem::path& folder, std::vector<TensorSpec> tensors, const FetchBytes& fetch,
                         size_t max_shard_bytes = kDefaultShardBytes, WritePace* pace = nullptr);
void write_weight_folder(const std::filesystem::path& folder, std::span<const TensorView> tensors,
                         size_t max_shard_bytes = kDefaultShardBytes);

}  // namespace tandem
