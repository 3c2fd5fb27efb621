#include "app/run_folder.h"

#include <fmt/format.h>

#include "base/file.h"
#include "base/log.h"

namespace tandem {

namespace fs = std::filesystem;

fs::path run_folder_of(std::string_view default_local_dir) {
  const fs::path local = expand_user(default_local_dir);
  return local.filename() == "checkpoints" ? local.parent_path() : local;
}

void set_aside_earlier_run(const fs::path& folder) {
  if (!fs::exists(folder / "metrics.jsonl")) return;
  int number = 1;
  while (fs::exists(folder / fmt::format("earlier-{}", number))) ++number;
  const fs::path aside = folder / fmt::format("earlier-{}", number);
  fs::create_directories(aside);
  for (const char* name : {"metrics.jsonl", "samples.jsonl", "config.yaml", "tensorboard"})
    if (fs::exists(folder / name)) fs::rename(folder / name, aside / name);
  log_info("an earlier run's records are now in " + aside.string());
}

}  // namespace tandem
