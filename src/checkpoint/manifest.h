// manifest.json of a checkpoint folder: the list of its files with sizes and checksums, and of each tensor in them with
// type, shape and place in the whole. Written last, so that its presence means that everything before it was written.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/manager.h"

namespace tandem {

struct ManifestFile {
  std::string path;  // relative to the folder
  uint64_t size = 0;
  uint64_t xxh64 = 0;
};

struct Manifest {
  int64_t step = 0;
  int64_t sequence = 0;  // counts the saves under one root
  std::vector<ManifestFile> files;
};

// Fsyncs every file below `folder`, then writes the manifest and fsyncs that. IoError for links and special files.
void seal_folder(const std::filesystem::path& folder, int64_t step, int64_t sequence);

// IoError saying what is missing or changed, or that the manifest is of another step than `step`.
Manifest verify_folder(const std::filesystem::path& folder, std::optional<int64_t> step, Verify verify);

}  // namespace tandem
