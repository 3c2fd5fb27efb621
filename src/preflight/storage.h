// The folder that checkpoints go to: can it be written, is it what all machines see, how fast is it, how is it striped.
#pragma once

#include <filesystem>
#include <functional>

#include "preflight/file_system.h"
#include "preflight/finding.h"

namespace tandem {

struct Throughput {
  double write = 0, read = 0;  // bytes per second; the write includes its fsync
};

// Writes a file of `bytes` into `folder`, reads it back past the page cache (where the system lets go of it), removes
// it. IoError naming the folder.
Throughput measure_storage(const std::filesystem::path& folder, int64_t bytes);

struct StorageOptions {
  std::filesystem::path folder;
  int64_t nodes = 1;
  double least_bytes_per_s = 0;  // 0: report only
  int64_t checkpoint_bytes = 0;
  int64_t test_bytes = 0;  // 0: not measured
  std::function<Throughput(const std::filesystem::path&, int64_t)> measure = measure_storage;
};

// Makes the folder where it is missing.
Finding check_storage(const StorageOptions& options, const FileSystem& files);

}  // namespace tandem
