// Files of one JSON object a line, appended to by a process that may be killed at any time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

#include "observe/append_file.h"

namespace tandem {

// Drops the lines whose "step" is greater than `step`, and an unfinished last line. Lines without a readable "step" are
// kept, with a warning. A file that is absent is left so. IoError when the file cannot be read or written.
void truncate_jsonl_after(const std::filesystem::path& path, int64_t step);

// Not thread-safe. Opening the file cuts off an unfinished last line, which a kill may have left. Errors are those of
// AppendFile.
class JsonlWriter {
 public:
  explicit JsonlWriter(const std::filesystem::path& path);
  void append(std::string_view record);  // without its newline; in the system's hands when it returns

 private:
  AppendFile file_;
};

}  // namespace tandem
