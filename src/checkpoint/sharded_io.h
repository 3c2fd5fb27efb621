// Tensors in pieces: each rank writes what it holds, with where that lies in the whole; any rank of any other layout
// reads the rectangle it needs. Files are safetensors; the places are JSON under "tandem.slices" in their metadata, so
// that other programs still open them. Torch-free.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/safetensors.h"

namespace tandem {

// A rectangle of a tensor: [start, start + shape) in each dim of `global_shape`.
struct TensorSlice {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> global_shape, start, shape;

  size_t num_bytes() const;
};

using FetchSlice = std::function<std::span<const std::byte>(size_t index)>;  // row-major bytes of slices[index]

// One rank's file. A tensor may stand in it in several slices (an FSDP shard may be the end of a row, whole rows, and
// the beginning of one). Written, fsynced and renamed as write_safetensors() does. `pace` may be null.
void write_slices(const std::filesystem::path& path, const std::vector<TensorSlice>& slices, const FetchSlice& fetch,
                  WritePace* pace = nullptr);

// Where each tensor of a file lies in its whole; tensors without a word are whole. IoError for a place that is outside.
std::vector<TensorSlice> slices_of(const SafetensorsFile& file);

// The files that hold a model's weights, as WeightFolder finds them.
std::vector<std::filesystem::path> weight_files(const std::filesystem::path& folder);

// Files of one folder, mapped: only what is read is fetched from the disk. Safe to read from many threads.
class ShardedFolder {
 public:
  explicit ShardedFolder(const std::filesystem::path& folder);  // every *.safetensors in it
  ShardedFolder(const std::filesystem::path& folder, const std::vector<std::filesystem::path>& files);

  const std::filesystem::path& path() const { return folder_; }
  bool contains(const std::string& name) const { return tensors_.contains(name); }
  std::vector<std::string> names() const;                            // ascending
  const std::vector<int64_t>& shape(const std::string& name) const;  // of the whole; IoError when absent
  DType dtype(const std::string& name) const;

  // Fills `out` with the rectangle [start, start + shape), row-major. IoError naming tensor and folder when no rank's
  // file has a part of it. Returns the bytes that were read.
  size_t read(const std::string& name, std::span<const int64_t> start, std::span<const int64_t> shape,
              std::span<std::byte> out) const;
  // It will be read soon: the disk may begin. Returns at once.
  void will_read(const std::string& name, std::span<const int64_t> start, std::span<const int64_t> shape) const;

 private:
  struct Part {
    size_t file, tensor;
    TensorSlice slice;
  };
  const std::vector<Part>& parts(const std::string& name) const;

  std::filesystem::path folder_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, std::vector<Part>> tensors_;  // of one tensor, no slice twice
};

}  // namespace tandem
