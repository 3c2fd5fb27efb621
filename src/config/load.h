// From YAML files and dotted overrides to a checked Config.
//
// Files are merged in order, overrides come last and follow Hydra's grammar: key=value, +key=value, ++key=value (all
// three set the key), ~key (back to its default); values are null, true, numbers, text, 'quoted', [lists] and {dicts},
// with ${a.b}, ${oc.env:NAME,default} and ${oc.select:a.b,default} filled in.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/config.h"

namespace tandem {

struct LoadedConfig {
  Config config;
  std::vector<std::string> notes;     // one a key that is accepted without effect: why
  std::vector<std::string> warnings;  // legal, but hardly meant
};

enum class Purpose {
  kRun,
  kPrint,  // neither model nor data need be named
};

// Throws ConfigError (an unknown key, a value of the wrong type or out of range, ...) or IoError (no such file).
LoadedConfig load_config_with_notes(const std::vector<std::filesystem::path>& yaml_files,
                                    std::span<const std::string> overrides, Purpose purpose = Purpose::kRun);

// The same, with notes and warnings written to the log.
Config load_config(const std::vector<std::filesystem::path>& yaml_files, std::span<const std::string> overrides,
                   Purpose purpose = Purpose::kRun);

// Like load_config_with_notes for one text in YAML; `name` stands for the file in errors.
LoadedConfig parse_config(std::string_view yaml, std::string_view name, std::span<const std::string> overrides);

// Refuses values out of range and combinations that cannot work, naming the key and what to do; returns warnings.
// Loading calls it; call it again after changing a Config by hand.
std::vector<std::string> validate(const Config& config);

}  // namespace tandem
