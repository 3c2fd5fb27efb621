// A configuration for people: with documentation, as plain YAML, and as the reference page docs/config.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "config/config.h"
#include "config/tuning_config.h"

namespace tandem {

// YAML with each key's documentation; keys that differ from the default are marked with * and show it; the sizes that
// follow stand at the end, with the number of steps if the number of rows is given. Loading it gives the same Config.
std::string describe_config(const Config& config, std::optional<int64_t> train_rows = std::nullopt);
std::string describe_config(const TuningConfig& config);

// The sizes that follow, each with its name: "samples a step", "64 = 8 prompts x 8 (rollout.n)".
using NamedSizes = std::vector<std::pair<std::string, std::string>>;
NamedSizes describe_sizes(const Config& config, std::optional<int64_t> train_rows = std::nullopt);

// The same keys and values without comments, to be kept with a run.
std::string resolved_yaml(const Config& config);
std::string resolved_yaml(const TuningConfig& config);

// docs/config.md, made from the field lists and the lists of verl_keys.h.
std::string config_markdown();

}  // namespace tandem
