// Room for the checkpoints to come.
#pragma once

#include <string>

#include "preflight/file_system.h"
#include "preflight/finding.h"

namespace tandem {

struct DiskNeed {
  int64_t checkpoint_bytes = 0;  // of one
  int64_t most_kept = 0;         // 0: all of them
  int64_t saves = 0;             // of the run; 0: unknown
  int64_t journal_bytes = 0;     // most
  std::string folder;            // for the text
};

// A new checkpoint is whole before an old one goes, so there is one more than are kept.
Finding check_disk(const DiskNeed& need, const FileSystem& files);

}  // namespace tandem
