// log.jsonl of a run: what began, ended and went wrong, a line each: {"time": Unix seconds, "level": "info", "warning"
// or "error", "text": ...}, with "event": "start", "end" or "failure" where the run's own state changed.
#pragma once

#include <filesystem>
#include <mutex>
#include <string_view>

#include "observe/jsonl.h"

namespace tandem {

// While one lives, the program's warnings and errors (base/log.h) are its lines; at most one lives at a time.
// Thread-safe. A line that cannot be written is left out: the log must not end a run.
class RunLog {
 public:
  explicit RunLog(const std::filesystem::path& path);  // IoError when it cannot be opened
  ~RunLog();
  RunLog(const RunLog&) = delete;
  RunLog& operator=(const RunLog&) = delete;

  void event(std::string_view event, std::string_view level, std::string_view text);

 private:
  void append(std::string_view event, std::string_view level, std::string_view text) noexcept;

  std::mutex mutex_;
  JsonlWriter file_;
};

}  // namespace tandem
