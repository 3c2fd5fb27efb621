#include "observe/jsonl.h"

#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <system_error>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"

namespace tandem {
namespace {

constexpr std::string_view kStepKey = "{\"step\":";

std::optional<int64_t> step_of(std::string_view line) {
  // Our own lines start with the step; parsing only that keeps a log of many gigabytes quick to cut.
  if (line.starts_with(kStepKey)) {
    int64_t step = 0;
    const char* begin = line.data() + kStepKey.size();
    const char* end = line.data() + line.size();
    const auto read = std::from_chars(begin, end, step);
    if (read.ec == std::errc() && read.ptr != end && (*read.ptr == ',' || *read.ptr == '}')) return step;
  }
  const auto object = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return std::nullopt;
  const auto step = object.find("step");
  if (step == object.end() || !step->is_number_integer()) return std::nullopt;
  return step->get<int64_t>();
}

void resize(const std::filesystem::path& path, size_t size) {
  std::error_code why;
  std::filesystem::resize_file(path, size, why);
  if (why) throw IoError("cannot shorten " + path.string() + ": " + why.message());
}

std::string_view as_text(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

void cut_unfinished_line(const std::filesystem::path& path) {
  if (!std::filesystem::exists(path)) return;
  size_t size = 0, whole = 0;
  {
    const MappedFile file(path);
    size = file.bytes().size();
    whole = as_text(file).rfind('\n') + 1;  // npos + 1 is 0: no whole line
  }
  if (whole == size) return;
  log_warn(path.string() + ": cut off its last line, which an interrupted run left unfinished");
  resize(path, whole);
}

struct Kept {
  std::string lines;
  size_t unreadable = 0;
};

Kept keep_up_to(std::string_view text, int64_t step) {
  Kept kept;
  while (!text.empty()) {
    const size_t length = text.find('\n') + 1;
    const auto line_step = step_of(text.substr(0, length - 1));
    if (!line_step) ++kept.unreadable;
    if (!line_step || *line_step <= step) kept.lines += text.substr(0, length);
    text.remove_prefix(length);
  }
  return kept;
}

}  // namespace

void truncate_jsonl_after(const std::filesystem::path& path, int64_t step) {
  if (!std::filesystem::exists(path)) return;
  cut_unfinished_line(path);
  Kept kept;
  bool is_start = false, changed = false;
  {
    const MappedFile file(path);
    const auto text = as_text(file);
    kept = keep_up_to(text, step);
    is_start = text.starts_with(kept.lines);
    changed = kept.lines.size() != text.size();
  }
  if (kept.unreadable > 0)
    log_warn(path.string() + ": kept " + std::to_string(kept.unreadable) + " lines without a readable \"step\"");
  if (!changed) return;
  if (is_start) {
    resize(path, kept.lines.size());
  } else {
    write_file_atomic(path, kept.lines);
  }
}

JsonlWriter::JsonlWriter(const std::filesystem::path& path) : file_((cut_unfinished_line(path), path)) {}

void JsonlWriter::append(std::string_view record) {
  check(record.find('\n') == std::string_view::npos, "a record is one line");
  file_.append(std::string(record) + '\n');
}

}  // namespace tandem
