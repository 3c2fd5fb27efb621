#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdlib>

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

}  // namespace

void log_debug(std::string_view text) { logger().debug("{}", text); }
void log_info(std::string_view text) { logger().info("{}", text); }
void log_warn(std::string_view text) { logger().warn("{}", text); }
void log_error(std::string_view text) { logger().error("{}", text); }

}  // namespace tandem
