// A YAML text as dotted keys and one-line values, in the order of the text.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tandem {

// {a: {b: 1}, c: [x, y]} gives (a.b, 1), (c, [x, y]). ConfigError where it is no YAML; `name` stands for it in errors.
std::vector<std::pair<std::string, std::string>> flat_yaml(std::string_view text, std::string_view name);

}  // namespace tandem
