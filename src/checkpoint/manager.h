// Checkpoint folders in verl's layout: <root>/global_step_<N>/ and <root>/latest_checkpointed_iteration.txt. What
// stands under a global_step_ name was written completely: a checkpoint is made in a hidden folder, a manifest (file
// names, sizes, checksums) is written last, everything is fsynced, and only then is the folder renamed. Torch-free.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <vector>

namespace tandem {

struct Checkpoint {
  int64_t step = 0;
  std::filesystem::path folder;
};

enum class Verify {
  kSizes,    // the manifest is there and every file has its size
  kContent,  // the checksums too: reads every byte
};

// One manager at a time may save under a root; reading is safe beside it. Errors are IoError naming the path.
class CheckpointManager {
 public:
  // `keep`: how many of the checkpoints saved last remain after a save; 0 keeps all.
  explicit CheckpointManager(std::filesystem::path root, int keep = 0);

  // Calls `write` with an empty folder to fill (subfolders are fine, links are not), then publishes it as
  // global_step_<step>, replacing a folder of that name, complete or broken. When anything fails (a full disk, an
  // exception of `write`) the hidden folder is removed and earlier checkpoints are as before.
  Checkpoint save(int64_t step, const std::function<void(const std::filesystem::path& folder)>& write);

  // The same for a folder whose manifest `fill` brings along (from elsewhere); IoError unless every checksum holds.
  Checkpoint import(int64_t step, const std::function<void(const std::filesystem::path& folder)>& fill);

  // The complete checkpoint that was saved last; by order of saving, not by step, so that a run which went back to an
  // older step does not resume from the steps it abandoned. Broken folders are named in a warning and skipped.
  std::optional<Checkpoint> find_latest(Verify verify = Verify::kSizes) const;

  std::vector<int64_t> complete_steps() const;  // ascending, by sizes; silent about broken folders
  std::vector<int64_t> newest_steps() const;    // the same, saved last first
  const std::filesystem::path& root() const { return root_; }

 private:
  void remove_old(int64_t just_saved) const;

  std::filesystem::path root_;
  int keep_;
};

// For a folder that the user names: IoError saying what is broken. The step comes from the manifest.
Checkpoint open_checkpoint(const std::filesystem::path& folder, Verify verify = Verify::kContent);

}  // namespace tandem
