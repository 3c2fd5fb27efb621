// A free-form dictionary of the user's, kept as the text of a JSON object until whoever needs it parses it.
#pragma once

#include <string>

namespace tandem {

struct JsonText {
  std::string text = "{}";
  bool operator==(const JsonText&) const = default;
};

}  // namespace tandem
