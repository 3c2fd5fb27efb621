#include "preflight/disk.h"

#include <fmt/format.h>

#include <algorithm>

namespace tandem {

Finding check_disk(const DiskNeed& need, const FileSystem& files) {
  Finding finding{"disk", Verdict::kPass, "", "", {}};
  int64_t count = need.most_kept > 0 ? need.most_kept + 1 : 0;
  if (need.saves > 0) count = count == 0 ? need.saves : std::min(count, need.saves);
  const bool unbounded = count == 0;
  count = std::max<int64_t>(count, 2);
  const int64_t all = count * need.checkpoint_bytes + need.journal_bytes;
  const std::string free = gib_text(files.free_bytes), one = gib_text(need.checkpoint_bytes);
  finding.why =
      fmt::format("{} checkpoints of {} and {} of journal, {} free", count, one, gib_text(need.journal_bytes), free);
  if (need.checkpoint_bytes > files.free_bytes) {
    finding.worsen(Verdict::kFail, fmt::format("a checkpoint takes {}, and {} are free for {}", one, free, need.folder),
                   "make room, or choose another trainer.default_local_dir");
  } else if (all > files.free_bytes) {
    finding.worsen(Verdict::kWarn,
                   fmt::format("{} checkpoints of {} and {} of journal take {}, and {} are free", count, one,
                               gib_text(need.journal_bytes), gib_text(all), free),
                   "make room, or keep fewer: trainer.max_actor_ckpt_to_keep, trainer.journal.max_gb");
  } else if (unbounded) {
    finding.details.push_back(
        fmt::format("all checkpoints are kept: the disk is full after {} of them; "
                    "trainer.max_actor_ckpt_to_keep bounds that",
                    files.free_bytes / std::max<int64_t>(1, need.checkpoint_bytes)));
  }
  return finding;
}

}  // namespace tandem
