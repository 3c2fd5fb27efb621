#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <exception>
#include <future>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/shard_writes.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

// A file under a temporary name that becomes `path` on publish() and disappears when that is not reached.
class TemporaryFile {
 public:
  TemporaryFile(const fs::path& path, WritePace* pace) : path_(path), temporary_(path), pace_(pace) {
    temporary_ += ".tmp." + std::to_string(::getpid());
    fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd_ < 0) fail("create");
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() {
    ::close(fd_);
    if (!published_) ::unlink(temporary_.c_str());
  }

  void append(std::span<const std::byte> bytes) {
    const size_t most = pace_ != nullptr && pace_->bounded() ? kPacedBytes : kPieceBytes;
    while (!bytes.empty()) {
      const size_t piece = std::min(bytes.size(), most);
      if (pace_ != nullptr) pace_->before_writing(piece);
      const ssize_t n = ::write(fd_, bytes.data(), piece);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) fail("write");
      // Under a bound the disk starts at once, so that nothing piles up until the fsync.
      if (pace_ != nullptr && pace_->bounded()) ::sync_file_range(fd_, 0, 0, SYNC_FILE_RANGE_WRITE);
      bytes = bytes.subspan(static_cast<size_t>(n));
    }
  }

  void publish() {
    if (::fsync(fd_) != 0) fail("sync");
    if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail("rename to");
    published_ = true;
    sync_path(path_.has_parent_path() ? path_.parent_path() : fs::path("."));
  }

 private:
  [[noreturn]] void fail(const char* verb) const {
    throw IoError(std::string("cannot ") + verb + " " + path_.string() + ": " + std::strerror(errno));
  }

  static constexpr size_t kPieceBytes = 4 << 20;
  static constexpr size_t kPacedBytes = 256 << 10;  // by which a second may go beyond the bound

  fs::path path_, temporary_;
  WritePace* pace_;
  int fd_ = -1;
  bool published_ = false;
};

// The format's own order, which aligns each tensor to its element size.
void sort_for_file(std::vector<TensorSpec>& tensors) {
  std::sort(tensors.begin(), tensors.end(), [](const TensorSpec& a, const TensorSpec& b) {
    return a.dtype != b.dtype ? a.dtype > b.dtype : a.name < b.name;
  });
}

std::string header_of(const std::vector<TensorSpec>& tensors, const Metadata& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::string text = header.dump();
  text.pop_back();
  size_t offset = 0;
  for (const auto& tensor : tensors) {
    nlohmann::ordered_json entry;
    entry["dtype"] = dtype_name(tensor.dtype);
    entry["shape"] = tensor.shape;
    entry["data_offsets"] = {offset, offset + tensor.num_bytes()};
    offset += tensor.num_bytes();
    if (text.size() > 1) text += ',';
    text += nlohmann::json(tensor.name).dump() + ':' + entry.dump();
  }
  text += '}';
  text.resize((text.size() + 7) / 8 * 8, ' ');  // data starts aligned
  return text;
}

void check_names(const std::vector<TensorSpec>& tensors) {
  std::set<std::string_view> names;
  for (const auto& tensor : tensors) {
    check(tensor.name != "__metadata__", "a tensor may not be named __metadata__");
    check(names.insert(tensor.name).second, "tensor " + tensor.name + " is to be saved twice");
  }
}

std::vector<TensorSpec> specs_of(std::span<const TensorView> tensors) {
  std::vector<TensorSpec> specs;
  for (const auto& tensor : tensors) specs.push_back({tensor.name, tensor.dtype, tensor.shape});
  return specs;
}

FetchBytes fetch_from(std::span<const TensorView> tensors) {
  std::map<std::string_view, std::span<const std::byte>> bytes;
  for (const auto& tensor : tensors) bytes[tensor.name] = tensor.bytes;
  return [bytes = std::move(bytes)](const TensorSpec& spec) { return bytes.at(spec.name); };
}

std::vector<std::vector<TensorSpec>> split_into_shards(std::vector<TensorSpec> tensors, size_t max_bytes) {
  std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  std::vector<std::vector<TensorSpec>> shards(1);
  size_t filled = 0;
  for (auto& tensor : tensors) {
    const size_t bytes = tensor.num_bytes();
    if (!shards.back().empty() && filled + bytes > max_bytes) {
      shards.emplace_back();
      filled = 0;
    }
    filled += bytes;
    shards.back().push_back(std::move(tensor));
  }
  return shards;
}

std::string shard_name(size_t index, size_t count) {
  char name[64];
  std::snprintf(name, sizeof(name), "model-%05zu-of-%05zu.safetensors", index + 1, count);
  return name;
}

// model.safetensors.index.json.
std::string index_of(const std::vector<std::vector<TensorSpec>>& shards) {
  nlohmann::json root;
  size_t total = 0;
  for (size_t i = 0; i < shards.size(); ++i)
    for (const auto& tensor : shards[i]) {
      root["weight_map"][tensor.name] = shard_name(i, shards.size());
      total += tensor.num_bytes();
    }
  root["metadata"]["total_size"] = total;
  return root.dump(2) + "\n";
}

}  // namespace

void write_safetensors(const fs::path& path, std::vector<TensorSpec> tensors, const FetchBytes& fetch,
                       const Metadata& metadata, WritePace* pace) {
  check_names(tensors);
  sort_for_file(tensors);
  const std::string header = header_of(tensors, metadata);
  const uint64_t length = header.size();
  TemporaryFile file(path, pace);
  file.append(std::as_bytes(std::span(&length, 1)));
  file.append(std::as_bytes(std::span(header)));
  for (const auto& tensor : tensors) {
    const auto bytes = fetch(tensor);
    check(bytes.size() == tensor.num_bytes(), "the bytes of tensor " + tensor.name + " do not fit its shape");
    file.append(bytes);
  }
  file.publish();
}

void write_safetensors(const fs::path& path, std::span<const TensorView> tensors, const Metadata& metadata) {
  write_safetensors(path, specs_of(tensors), fetch_from(tensors), metadata);
}

void write_weight_folder(const fs::path& folder, std::vector<TensorSpec> tensors, const FetchBytes& fetch,
                         size_t max_shard_bytes, WritePace* pace) {
  std::error_code failed;
  fs::create_directories(folder, failed);
  if (failed) throw IoError("cannot make folder " + folder.string() + ": " + failed.message());
  check_names(tensors);
  auto shards = split_into_shards(std::move(tensors), max_shard_bytes);
  const auto single = folder / "model.safetensors", index = folder / "model.safetensors.index.json";
  // What an earlier save of the other kind left would be preferred by some readers, so it goes once the new is there.
  if (shards.size() == 1) {
    write_safetensors(single, std::move(shards[0]), fetch, {{"format", "pt"}}, pace);
    fs::remove(index, failed);
    return;
  }
  const std::string content = index_of(shards);
  for (size_t i = 0; i < shards.size(); ++i)
    write_safetensors(folder / shard_name(i, shards.size()), std::move(shards[i]), fetch, {{"format", "pt"}}, pace);
  write_file_atomic(index, content);
  fs::remove(single, failed);
}

std::vector<std::function<void()>> weight_shard_writes(const fs::path& folder, std::vector<TensorSpec> tensors,
                                                       const FetchBytes& fetch, size_t files, WritePace* pace) {
  check_names(tensors);
  size_t total = 0;
  for (const TensorSpec& tensor : tensors) total += tensor.num_bytes();
  auto shards = split_into_shards(std::move(tensors), (total + files - 1) / files);
  if (shards.size() > 1) write_file_atomic(folder / "model.safetensors.index.json", index_of(shards));
  std::vector<std::function<void()>> writes;
  for (size_t i = 0; i < shards.size(); ++i) {
    const fs::path path = folder / (shards.size() == 1 ? "model.safetensors" : shard_name(i, shards.size()));
    writes.emplace_back([path, shard = std::move(shards[i]), fetch, pace] {
      write_safetensors(path, shard, fetch, {{"format", "pt"}}, pace);
    });
  }
  return writes;
}

void run_side_by_side(const std::vector<std::function<void()>>& writes) {
  constexpr size_t kMost = 8;
  std::atomic<size_t> next = 0;
  std::vector<std::future<void>> lanes;
  std::vector<std::exception_ptr> failures(writes.size());
  for (size_t lane = 0; lane < std::min(kMost, writes.size()); ++lane)
    lanes.push_back(std::async(std::launch::async, [&] {
      for (size_t i = next++; i < writes.size(); i = next++) try {
          writes[i]();
        } catch (...) {
          failures[i] = std::current_exception();
        }
    }));
  for (std::future<void>& lane : lanes) lane.get();
  for (const std::exception_ptr& failure : failures)
    if (failure) std::rethrow_exception(failure);
}

void write_weight_folder(const fs::path& folder, std::span<const TensorView> tensors, size_t max_shard_bytes) {
  write_weight_folder(folder, specs_of(tensors), fetch_from(tensors), max_shard_bytes);
}

}  // namespace tandem
