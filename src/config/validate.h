// Values that have the right type but cannot work, and combinations of them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/config.h"

namespace tandem {

struct Problem {
  std::string key;
  std::string text;  // "key=value: what is wrong and what to do"
};

std::optional<Problem> find_problem(const Config& config);     // the first one
std::vector<std::string> find_warnings(const Config& config);  // of a configuration without problems

}  // namespace tandem
