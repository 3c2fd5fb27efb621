// Lines for people, on stderr. Thread-safe. The level comes from TANDEM_LOG (debug, info, warn, error; default info).
#pragma once

#include <string_view>

namespace tandem {

void log_debug(std::string_view text);
void log_info(std::string_view text);
void log_warn(std::string_view text);
void log_error(std::string_view text);

}  // namespace tandem
