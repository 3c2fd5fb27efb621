// Values that have the right type but cannot work, and combinations of them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/load.h"

namespace tandem {

struct Problem {
  std::string key;
  std::string text;  // "key=value: what is wrong and what to do"
};

// Policy losses whose tokens are averaged within the response first: they have one aggregation.
bool averages_in_response(std::string_view loss_mode);

std::optional<Problem> find_problem(const Config& config, Purpose purpose);  // the first one
std::vector<std::string> find_warnings(const Config& config);                // of a configuration without problems

}  // namespace tandem
