// Adapters, from configuration keys and from the command line.
#pragma once

#include <filesystem>
#include <string>

#include "config/actor_config.h"
#include "model/lora.h"

namespace tandem {

// `key` is the section's, with its dot, for errors.
LoraOptions lora_options(const PolicyModelConfig& model, uint64_t seed, const std::string& key);
// A folder that holds adapters, or a checkpoint of a run that trained them. ConfigError naming `key` for another.
std::filesystem::path resolve_adapter(const std::string& path, const std::string& key);
LoraOptions given_adapter(const std::string& path);  // of --adapter; empty: none

}  // namespace tandem
