#include "checkpoint/manifest.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "checkpoint/checksum.h"
#include "checkpoint/shard_writes.h"
#include "checkpoint/sharded_io.h"
#include "checkpoint/strict_json.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::string_view kManifestName = "manifest.json";
constexpr int kFormat = 2;  // 1: without tensors
constexpr int kDepth = 6;
constexpr std::string_view kAdvice = "; delete it or resume from another checkpoint";

std::string hex(uint64_t value) {
  char text[17];
  std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(value));
  return text;
}

uint64_t from_hex(const std::string& text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (text.size() != 16 || error != std::errc() || end != text.data() + text.size())
    throw IoError(in_quotes(text) + " is not a checksum");
  return value;
}

json tensors_of(const fs::path& path) {
  json tensors = json::array();
  for (const TensorSlice& slice : slices_of(SafetensorsFile(path)))
    tensors.push_back({{"name", slice.name},
                       {"dtype", dtype_name(slice.dtype)},
                       {"global_shape", slice.global_shape},
                       {"start", slice.start},
                       {"shape", slice.shape}});
  return tensors;
}

bool stays_inside(const fs::path& path) {
  return !path.empty() && path.is_relative() && std::find(path.begin(), path.end(), "..") == path.end();
}

Manifest read_manifest(const fs::path& folder) {
  const fs::path path = folder / kManifestName;
  if (!fs::is_directory(folder)) throw IoError("checkpoint " + folder.string() + " is not a folder");
  if (!fs::exists(path)) {
    throw IoError("checkpoint " + folder.string() + " is incomplete: it has no manifest.json" + std::string(kAdvice));
  }
  const json root = parse_strict_json(read_file(path), kDepth, path);
  Manifest manifest;
  try {
    const int format = root.at("format").get<int>();
    if (format < 1 || format > kFormat) throw IoError(path.string() + " is of another version of Tandem");
    manifest.step = root.at("step").get<int64_t>();
    manifest.sequence = root.at("sequence").get<int64_t>();
    for (const auto& file : root.at("files")) {
      manifest.files.push_back({file.at("path").get<std::string>(), file.at("size").get<uint64_t>(),
                                from_hex(file.at("xxh64").get<std::string>())});
      if (!stays_inside(manifest.files.back().path))
        throw IoError(path.string() + ": file " + in_quotes(manifest.files.back().path) + " is outside the checkpoint");
    }
  } catch (const json::exception&) {
    throw IoError(path.string() + " lacks a key or holds a value of another type; it is broken" + std::string(kAdvice));
  }
  return manifest;
}

void verify_file(const fs::path& folder, const ManifestFile& file, Verify verify) {
  const auto fail = [&](const std::string& what) {
    throw IoError("checkpoint " + folder.string() + " is broken: " + file.path + " " + what + std::string(kAdvice));
  };
  std::error_code failed;
  const uint64_t size = fs::file_size(folder / file.path, failed);
  if (failed) fail("is missing");
  if (size != file.size) fail("has " + std::to_string(size) + " bytes, not " + std::to_string(file.size));
  if (verify == Verify::kContent && xxh64_file(folder / file.path) != file.xxh64)
    fail("has another checksum than when it was written");
}

}  // namespace

void seal_folder(const fs::path& folder, int64_t step, int64_t sequence) {
  check(!fs::exists(folder / kManifestName), "manifest.json at the top of a checkpoint is the manager's own");
  json files = json::array();
  std::vector<fs::path> folders{folder}, paths;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_symlink() || !(entry.is_directory() || entry.is_regular_file()))
      throw IoError("checkpoint file " + entry.path().string() + " is neither a file nor a folder; copy it instead");
    (entry.is_directory() ? folders : paths).push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  std::vector<uint64_t> checksums(paths.size());
  std::vector<std::function<void()>> reads;  // the ranks' files side by side
  for (size_t i = 0; i < paths.size(); ++i)
    reads.emplace_back([&, i] {
      sync_path(paths[i]);
      checksums[i] = xxh64_file(paths[i]);
    });
  run_side_by_side(reads);
  for (size_t i = 0; i < paths.size(); ++i) {
    files.push_back({{"path", paths[i].lexically_relative(folder).generic_string()},
                     {"size", static_cast<uint64_t>(fs::file_size(paths[i]))},
                     {"xxh64", hex(checksums[i])}});
    if (paths[i].extension() == ".safetensors") files.back()["tensors"] = tensors_of(paths[i]);
  }
  const json root{{"format", kFormat}, {"step", step}, {"sequence", sequence}, {"files", std::move(files)}};
  write_file_atomic(folder / kManifestName, root.dump(1) + "\n");
  for (const auto& path : folders) sync_path(path);
}

Manifest verify_folder(const fs::path& folder, std::optional<int64_t> step, Verify verify) {
  auto manifest = read_manifest(folder);
  if (step && manifest.step != *step) {
    throw IoError("checkpoint " + folder.string() + " was saved as step " + std::to_string(manifest.step) +
                  "; it was renamed or copied over" + std::string(kAdvice));
  }
  std::vector<std::function<void()>> reads;
  for (const auto& file : manifest.files) {
    verify_file(folder, file, Verify::kSizes);
    if (verify == Verify::kContent) reads.emplace_back([&] { verify_file(folder, file, verify); });
  }
  run_side_by_side(reads);
  return manifest;
}

}  // namespace tandem
