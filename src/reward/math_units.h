// Units that answers are given in.
#pragma once

#include <string_view>

namespace tandem {

// The canonical name ("cm", "ft^2") of a unit in lower case without blanks, plural or not; empty for other words.
std::string_view unit_name(std::string_view word);

}  // namespace tandem
