// From YAML files and dotted overrides to a checked TuningConfig; the grammar is load.h's.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "config/load.h"
#include "config/tuning_config.h"

namespace tandem {

// Keys of verl's SFT trainer without effect here are named in the log with the reason. ConfigError for unknown and
// refused keys, values of the wrong type and what cannot work; IoError for a file that is not there.
TuningConfig load_tuning_config(const std::vector<std::filesystem::path>& yaml_files,
                                std::span<const std::string> overrides, Purpose purpose = Purpose::kRun);

// Throws ConfigError for the first value that cannot work.
void validate(const TuningConfig& config, Purpose purpose = Purpose::kRun);

}  // namespace tandem
