// What the planner is calibrated by: a run's metrics.jsonl with the config.yaml beside it, or the JSON lines of
// `tandem bench rollout|train|step`.
#pragma once

#include <filesystem>
#include <vector>

#include "planner/calibration.h"

namespace tandem {

// `cluster`: the machine that they were measured on; its number of devices is the run's own. IoError or DataError
// naming the file.
std::vector<Measured> read_measured(const std::filesystem::path& file, const ClusterSpec& cluster);

}  // namespace tandem
