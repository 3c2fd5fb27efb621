// The folder of a run: config.yaml, metrics.jsonl, checkpoints.
#pragma once

#include <filesystem>
#include <string_view>

namespace tandem {

// What holds default_local_dir when that is called "checkpoints", else that folder itself.
std::filesystem::path run_folder_of(std::string_view default_local_dir);

// A run that starts anew where another one was keeps what that one wrote, in earlier-N.
void set_aside_earlier_run(const std::filesystem::path& folder);

}  // namespace tandem
