#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdio>
#include <cstdlib>
#include <utility>

namespace tandem {
namespace {

spdlog::logger& logger() {
  static auto instance = [] {
    auto made = spdlog::stderr_color_mt("tandem");
    made->set_pattern("%^%H:%M:%S %l%$ %v");
    const char* level = std::getenv("TANDEM_LOG");
    made->set_level(level ? spdlog::level::from_str(level) : spdlog::level::info);
    return made;
  }();
  return *instance;
}

LiveLine*& live_line() {
  static LiveLine* instance = nullptr;
  return instance;
}

template <class Print>
void print_above_live_line(const Print& print) {
  const std::lock_guard lock(terminal_mutex());
  if (live_line() != nullptr) live_line()->wipe();
  print();
}

void log_line(spdlog::level::level_enum level, std::string_view text) {
  if (!logger().should_log(level)) return;
  print_above_live_line([&] { logger().log(level, "{}", text); });
}

struct Listening {
  std::mutex mutex;
  LogListener listener;
};

Listening& listening() {
  static Listening instance;
  return instance;
}

void tell(LogLevel level, std::string_view text) {
  const std::lock_guard lock(listening().mutex);
  if (listening().listener) listening().listener(level, text);
}

}  // namespace

void log_debug(std::string_view text) { log_line(spdlog::level::debug, text); }
void log_info(std::string_view text) { log_line(spdlog::level::info, text); }
void log_warn(std::string_view text) {
  log_line(spdlog::level::warn, text);
  tell(LogLevel::kWarning, text);
}
void log_error(std::string_view text) {
  log_line(spdlog::level::err, text);
  tell(LogLevel::kError, text);
}

void set_log_listener(LogListener listener) {
  const std::lock_guard lock(listening().mutex);
  listening().listener = std::move(listener);
}

void print_line(std::string_view text) {
  print_above_live_line([&] {
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fputc('\n', stdout);
    std::fflush(stdout);
  });
}

std::mutex& terminal_mutex() {
  static std::mutex instance;
  return instance;
}

void set_live_line(LiveLine* live) { live_line() = live; }

}  // namespace tandem
