// ${...} as in OmegaConf: ${a.b} (another key), ${.b} (a neighbour), ${oc.env:NAME,default}, ${oc.select:a.b,default};
// they nest, and \${ stands for the two characters themselves.
#pragma once

#include <functional>
#include <optional>
#include <string_view>

#include "config/value.h"

namespace tandem {

// The value of a key as written, or as it stands by default; nothing if there is no such key.
using Lookup = std::function<std::optional<Value>(std::string_view key)>;

// `value` with everything in it filled in; `key` is where it stands. ConfigError for a missing key or variable, an
// unknown resolver, or a circle.
Value interpolate(const Value& value, std::string_view key, const Lookup& lookup);

}  // namespace tandem
