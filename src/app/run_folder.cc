#include "app/run_folder.h"

#include <fmt/format.h>

#include "base/file.h"
#include "base/log.h"
#include "config/flat_yaml.h"

namespace tandem {

namespace {

namespace fs = std::filesystem;

void set_aside_earlier_run(const fs::path& folder) {
  if (!fs::exists(folder / "metrics.jsonl")) return;
  int number = 1;
  while (fs::exists(folder / fmt::format("earlier-{}", number))) ++number;
  const fs::path aside = folder / fmt::format("earlier-{}", number);
  fs::create_directories(aside);
  for (const char* name : {"metrics.jsonl", "samples.jsonl", "log.jsonl", "config.yaml", "tensorboard"})
    if (fs::exists(folder / name)) fs::rename(folder / name, aside / name);
  std::vector<fs::path> traces;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().filename().string().starts_with("trace_step_")) traces.push_back(entry.path());
  for (const fs::path& trace : traces) fs::rename(trace, aside / trace.filename());
  log_info("an earlier run's records are now in " + aside.string());
}

}  // namespace

fs::path run_folder_of(std::string_view default_local_dir) {
  const fs::path local = expand_user(default_local_dir);
  return local.filename() == "checkpoints" ? local.parent_path() : local;
}

std::optional<Checkpoint> checkpoint_to_resume(const RunConfig& config, const CheckpointManager& checkpoints) {
  if (config.resume_mode == "auto") return checkpoints.find_latest(Verify::kContent);
  if (config.resume_mode == "resume_path") return open_checkpoint(expand_user(config.resume_from_path.value_or("")));
  return std::nullopt;
}

Tracker open_records(const RunConfig& config, const fs::path& folder, const std::string& resolved_yaml,
                     std::optional<int64_t> resumed_step) {
  fs::create_directories(folder);
  if (!resumed_step) set_aside_earlier_run(folder);
  write_file_atomic(folder / "config.yaml", resolved_yaml);
  return make_tracker({config.logger, folder, config.project_name, config.experiment_name,
                       flat_yaml(resolved_yaml, "config.yaml"), resumed_step});
}

}  // namespace tandem
