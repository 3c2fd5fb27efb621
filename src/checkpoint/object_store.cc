#include "checkpoint/object_store.h"

#include <arrow/buffer.h>
#include <arrow/filesystem/filesystem.h>
#include <arrow/filesystem/s3fs.h>
#include <arrow/io/interfaces.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "global_step_", kManifest = "manifest.json";
constexpr int64_t kPieceBytes = 8 << 20;

std::string first_line(const arrow::Status& status) {
  const std::string text = status.message();
  return text.substr(0, text.find('\n'));
}

void require(const arrow::Status& status, const std::string& what) {
  if (!status.ok()) throw IoError("cannot " + what + ": " + first_line(status));
}

template <class T>
T value_of(arrow::Result<T> result, const std::string& what) {
  require(result.status(), what);
  return std::move(result).ValueUnsafe();
}

std::optional<int64_t> step_in(const std::string& name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  int64_t step = 0;
  const char* begin = name.data() + kPrefix.size();
  const char* end = name.data() + name.size();
  const auto read = std::from_chars(begin, end, step);
  return read.ec == std::errc() && read.ptr == end ? std::optional(step) : std::nullopt;
}

}  // namespace

struct ObjectStore::Place {
  std::shared_ptr<arrow::fs::FileSystem> system;
  std::string root;  // within it
  std::string name;  // for people
  bool uses_s3 = false;

  // The client's threads must be gone before the process's memory is.
  ~Place() {
    system.reset();
    if (uses_s3) (void)arrow::fs::EnsureS3Finalized();
  }

  bool is_local() const { return system->type_name() == "local"; }
  std::string folder(const std::string& step) const { return root + "/" + step; }

  void upload_file(const fs::path& from, const std::string& to, WritePace* pace) const {
    const std::string what = "write " + name + "/" + to.substr(root.size() + 1);
    if (is_local()) require(system->CreateDir(to.substr(0, to.rfind('/')), true), what);
    const MappedFile file(from);
    const auto out = value_of(system->OpenOutputStream(to), what);
    const auto size = static_cast<int64_t>(file.bytes().size());
    for (int64_t at = 0; at < size; at += kPieceBytes) {
      const int64_t piece = std::min(kPieceBytes, size - at);
      if (pace != nullptr) pace->before_writing(static_cast<uint64_t>(piece));
      require(out->Write(file.bytes().data() + at, piece), what);
    }
    require(out->Close(), what);
  }

  std::vector<arrow::fs::FileInfo> files_below(const std::string& path, bool recursive) const {
    arrow::fs::FileSelector below;
    below.base_dir = path;
    below.allow_not_found = true;
    below.recursive = recursive;
    return value_of(system->GetFileInfo(below), "list " + name);
  }

  bool has_manifest(const std::string& step_folder) const {
    const auto info = value_of(system->GetFileInfo(step_folder + "/" + std::string(kManifest)), "look into " + name);
    return info.type() == arrow::fs::FileType::File;
  }
};

ObjectStore::~ObjectStore() = default;

bool is_object_store(const std::string& location) { return location.starts_with("s3://"); }

ObjectStore::ObjectStore(const std::string& location) : place_(std::make_unique<Place>()) {
  place_->name = location.substr(0, location.find('?'));
  if (is_object_store(location)) {
    require(arrow::fs::EnsureS3Initialized(), "start the S3 client");
    place_->uses_s3 = true;
  }
  const std::string path = is_object_store(location) ? location : fs::absolute(expand_user(location)).string();
  auto system = arrow::fs::FileSystemFromUriOrPath(path, &place_->root);
  if (!system.ok())
    throw ConfigError("trainer.checkpoint.remote_path=" + location + " is no place to write to (" +
                      first_line(system.status()) + "); give s3://BUCKET/PREFIX or a folder");
  place_->system = std::move(system).ValueUnsafe();
  while (place_->root.ends_with('/')) place_->root.pop_back();
}

void ObjectStore::upload(const fs::path& folder, const std::vector<fs::path>& extra, WritePace* pace) {
  const std::string to = place_->folder(folder.filename().string());
  if (place_->has_manifest(to))  // a new one of the same name: without a manifest until it is whole
    require(place_->system->DeleteFile(to + "/" + std::string(kManifest)), "replace " + place_->name);
  for (const fs::path& file : extra)
    if (fs::exists(file)) place_->upload_file(file, to + "/" + file.filename().string(), pace);
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    const std::string name = entry.path().lexically_relative(folder).generic_string();
    if (entry.is_regular_file() && name != kManifest) place_->upload_file(entry.path(), to + "/" + name, pace);
  }
  place_->upload_file(folder / kManifest, to + "/" + std::string(kManifest), pace);
}

std::vector<int64_t> ObjectStore::complete_steps() const {
  std::vector<int64_t> steps;
  for (const auto& info : place_->files_below(place_->root, false)) {
    const auto step = step_in(info.base_name());
    if (step && place_->has_manifest(place_->folder(info.base_name()))) steps.push_back(*step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

void ObjectStore::download(int64_t step, const fs::path& folder) const {
  const std::string from = place_->folder(std::string(kPrefix) + std::to_string(step));
  for (const auto& info : place_->files_below(from, true)) {
    if (info.type() != arrow::fs::FileType::File) continue;
    const fs::path to = folder / info.path().substr(from.size() + 1);
    const std::string what = "read " + info.path();
    fs::create_directories(to.parent_path());
    const auto in = value_of(place_->system->OpenInputStream(info), what);
    std::ofstream out(to, std::ios::binary);
    while (true) {
      const auto piece = value_of(in->Read(kPieceBytes), what);
      if (piece->size() == 0) break;
      out.write(reinterpret_cast<const char*>(piece->data()), piece->size());
    }
    out.close();
    if (!out) throw IoError("cannot write " + to.string() + ": is the disk full?");
  }
}

void ObjectStore::remove_all_but(size_t newest) const {
  const std::vector<int64_t> steps = complete_steps();
  for (size_t i = 0; i + newest < steps.size(); ++i) {
    const std::string folder = place_->folder(std::string(kPrefix) + std::to_string(steps[i]));
    require(place_->system->DeleteFile(folder + "/" + std::string(kManifest)), "remove " + folder);
    require(place_->system->DeleteDir(folder), "remove " + folder);
  }
}

std::optional<Checkpoint> fetch_newest(const ObjectStore& store, CheckpointManager& checkpoints) {
  std::vector<int64_t> steps = store.complete_steps();
  for (; !steps.empty(); steps.pop_back()) {
    try {
      return checkpoints.import(steps.back(), [&](const fs::path& folder) { store.download(steps.back(), folder); });
    } catch (const IoError& error) {
      log_warn(std::string("skipping a broken checkpoint in object storage: ") + error.what());
    }
  }
  return std::nullopt;
}

}  // namespace tandem
