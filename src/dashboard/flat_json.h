// One line of metrics.jsonl: a flat object of numbers. Tens of thousands of them must be read in a moment, so no
// document is built.
#pragma once

#include <functional>
#include <string_view>

namespace tandem {

// Calls `on_number` for each member that is a number, or one of the strings "NaN", "Infinity", "-Infinity", in order.
// Other members are passed over; keys with escapes are given as they are written. False: the line is not such an
// object, and what was handed out before its fault is to be dropped.
bool parse_flat_json(std::string_view line, const std::function<void(std::string_view key, double value)>& on_number);

// The end of the JSON value at `begin` (of any kind), or npos where it is broken. Strings are not decoded.
size_t skip_json_value(std::string_view text, size_t begin);

}  // namespace tandem
