// All checks of src/preflight on one configuration and this machine.
#pragma once

#include <filesystem>
#include <vector>

#include "app/config_words.h"
#include "config/config.h"
#include "preflight/finding.h"
#include "preflight/versions.h"

namespace tandem {

struct PreflightOptions {
  int64_t nodes = 0;                           // machines that are planned; 0: trainer.nnodes
  std::vector<std::filesystem::path> against;  // reports of other machines
};

struct PreflightReport {
  Findings findings;
  NodeFacts node;
};

PreflightReport run_preflight(const ConfigWords& words, const PreflightOptions& options);

// What a run checks itself, in milliseconds, before it loads anything: memory and disk. ConfigError for what cannot
// work; warnings go to the log. Nothing with trainer.preflight.enable=false.
void preflight_of_run(const Config& config);

}  // namespace tandem
