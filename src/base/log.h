// Lines for people, on stderr. Thread-safe. The level comes from TANDEM_LOG (debug, info, warn, error; default info).
#pragma once

#include <functional>
#include <mutex>
#include <string_view>

namespace tandem {

void log_debug(std::string_view text);
void log_info(std::string_view text);
void log_warn(std::string_view text);
void log_error(std::string_view text);

// Hears every warning and error too, whatever TANDEM_LOG says. At most one is known; null takes it away. It must not
// log.
enum class LogLevel { kWarning, kError };
using LogListener = std::function<void(LogLevel level, std::string_view text)>;
void set_log_listener(LogListener listener);

// A whole line on stdout, flushed, taking turns with the log lines.
void print_line(std::string_view text);

// Something that draws itself over and over in the last line of the terminal and is wiped before a line is printed.
class LiveLine {
 public:
  virtual ~LiveLine() = default;
  virtual void wipe() noexcept = 0;  // called with terminal_mutex() held
};

// Guards the terminal: held while a line is printed; a LiveLine holds it while it draws itself.
std::mutex& terminal_mutex();

// At most one is known; null takes it away. The caller holds terminal_mutex() and keeps `live` alive until then.
void set_live_line(LiveLine* live);

}  // namespace tandem
