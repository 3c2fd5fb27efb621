// Checkpoints in object storage (S3 and what speaks its protocol) or in another folder, by Arrow's file systems.
// Credentials and regions are the AWS SDK's: AWS_ACCESS_KEY_ID, AWS_PROFILE, an instance's role ...
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/manager.h"
#include "checkpoint/write_pace.h"

namespace tandem {

bool is_object_store(const std::string& location);  // s3://...

// May be used by one thread at a time. Errors are IoError naming the place. Arrow's S3 client starts once a process:
// when a store of S3's is gone, another cannot be made.
class ObjectStore {
 public:
  // s3://BUCKET/PREFIX, with options as Arrow takes them (?region=...&endpoint_override=HOST:PORT&scheme=http), or a
  // folder. ConfigError for anything else. Opens no connection.
  explicit ObjectStore(const std::string& location);
  ~ObjectStore();
  ObjectStore(const ObjectStore&) = delete;
  ObjectStore& operator=(const ObjectStore&) = delete;

  // Copies a checkpoint's files to <location>/<name>/, its manifest last: a folder without one is incomplete and never
  // looked at. `extra`: further files, put beside. `pace` may be null.
  void upload(const std::filesystem::path& folder, const std::vector<std::filesystem::path>& extra, WritePace* pace);

  std::vector<int64_t> complete_steps() const;  // ascending
  void download(int64_t step, const std::filesystem::path& folder) const;
  void remove_all_but(size_t newest) const;  // by step

 private:
  struct Place;
  std::unique_ptr<Place> place_;
};

// Fetches the newest complete checkpoint into the manager's root, checksums verified. A broken one is named in a
// warning, and the one before is taken. Nothing where there is none.
std::optional<Checkpoint> fetch_newest(const ObjectStore& store, CheckpointManager& checkpoints);

}  // namespace tandem
