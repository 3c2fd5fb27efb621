// The folder of a run: config.yaml, metrics.jsonl, log.jsonl, checkpoints.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "checkpoint/manager.h"
#include "config/run_config.h"
#include "observe/tracker.h"

namespace tandem {

// What holds default_local_dir when that is called "checkpoints", else that folder itself.
std::filesystem::path run_folder_of(std::string_view default_local_dir);

// By resume_mode; nothing: from the start.
std::optional<Checkpoint> checkpoint_to_resume(const RunConfig& config, const CheckpointManager& checkpoints);

// Makes the folder, writes config.yaml and opens the trackers. A run that starts anew (no `resumed_step`) where another
// one was keeps what that one wrote, in earlier-N; one that goes on keeps the records up to that step.
Tracker open_records(const RunConfig& config, const std::filesystem::path& folder, const std::string& resolved_yaml,
                     std::optional<int64_t> resumed_step);

}  // namespace tandem
