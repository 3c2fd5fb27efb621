#include "base/error.h"

namespace tandem {

void fail_check(std::string_view what, std::source_location at) {
  throw std::logic_error("internal error: " + std::string(what) + " (" + at.file_name() + ":" +
                         std::to_string(at.line()) + "); please report it");
}

}  // namespace tandem
