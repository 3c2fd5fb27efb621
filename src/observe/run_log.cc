#include "observe/run_log.h"

#include <chrono>
#include <string>

#include "base/error.h"
#include "base/log.h"
#include "observe/json_text.h"

namespace tandem {
namespace {

double unix_seconds() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<double>(std::chrono::duration_cast<std::chrono::milliseconds>(now).count()) / 1000;
}

}  // namespace

RunLog::RunLog(const std::filesystem::path& path) : file_(path) {
  set_log_listener([this](LogLevel level, std::string_view text) {
    append("", level == LogLevel::kError ? "error" : "warning", text);
  });
}

RunLog::~RunLog() { set_log_listener({}); }

void RunLog::event(std::string_view event, std::string_view level, std::string_view text) {
  append(event, level, text);
}

void RunLog::append(std::string_view event, std::string_view level, std::string_view text) noexcept {
  try {
    std::string line = "{\"time\":";
    append_json_number(line, unix_seconds());
    line += ",\"level\":";
    append_json_string(line, level);
    if (!event.empty()) {
      line += ",\"event\":";
      append_json_string(line, event);
    }
    line += ",\"text\":";
    append_json_string(line, text);
    const std::lock_guard lock(mutex_);
    file_.append(line + "}");
  } catch (const std::exception&) {  // a full disk, say: whoever logs has other worries
  }
}

}  // namespace tandem
