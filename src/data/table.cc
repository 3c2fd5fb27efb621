#include "data/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "data/parquet.h"

namespace tandem {
namespace {

constexpr std::string_view kBlank = " \t\r\n";
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
constexpr int kMaxDepth = 100;  // writing JSON out recurses, so the depth of a stranger's file is bounded

std::string_view without_byte_order_mark(std::string_view text) {
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  return text;
}

struct Extent {
  size_t length = 0;
  int depth = 0;  // deepest nesting
};

// Of the JSON value at the start of `text`, found by brackets and quotes alone; the parser judges the rest.
Extent extent_of_value(std::string_view text) {
  int depth = 0, deepest = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      deepest = std::max(deepest, ++depth);
    } else if (c == '}' || c == ']') {
      if (depth == 0) return {i, deepest};
      if (--depth == 0) return {i + 1, deepest};
    } else if (c == ',' && depth == 0) {
      return {i, deepest};
    }
  }
  return {text.size(), deepest};
}

nlohmann::json parse_record(std::string_view text, const std::string& where) {
  if (extent_of_value(text).depth > kMaxDepth)
    throw DataError(fmt::format("{}: nested deeper than {} levels; flatten the row", where, kMaxDepth));
  nlohmann::json record;
  try {
    record = nlohmann::json::parse(text);
  } catch (const nlohmann::json::exception& error) {
    throw DataError(fmt::format("{}: not valid JSON ({}); correct the file", where, error.what()));
  }
  if (!record.is_object())
    throw DataError(fmt::format("{}: {} instead of an object; each row must be {{\"column\": value, ...}}", where,
                                record.type_name()));
  return record;
}

size_t read_lines(std::string_view text, const std::string& name, const RecordSink& sink) {
  size_t row = 0, line = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view content = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++line;
    if (content.find_first_not_of(kBlank) == content.npos) continue;
    auto record = parse_record(content, fmt::format("{} row {} (line {})", name, row, line));
    if (!sink(std::move(record), row++)) break;
  }
  return row;
}

size_t read_array(std::string_view text, const std::string& name, const RecordSink& sink) {
  const auto skip_blank = [&text] { text.remove_prefix(std::min(text.find_first_not_of(kBlank), text.size())); };
  skip_blank();
  if (!text.starts_with('['))
    throw DataError(fmt::format("{}: not a JSON array of rows; one object a line belongs into a .jsonl file", name));
  text.remove_prefix(1);
  skip_blank();
  size_t row = 0;
  bool more = !text.starts_with(']');
  while (more) {
    const size_t length = extent_of_value(text).length;
    auto record = parse_record(text.substr(0, length), fmt::format("{} row {}", name, row));
    text.remove_prefix(length);
    if (!sink(std::move(record), row++)) return row;
    skip_blank();
    more = text.starts_with(',');
    if (more) text.remove_prefix(1);
    skip_blank();
  }
  if (!text.starts_with(']'))
    throw DataError(fmt::format("{}: the array does not close after row {}; the file is cut short or damaged", name,
                                static_cast<int64_t>(row) - 1));
  text.remove_prefix(1);
  skip_blank();
  if (!text.empty()) throw DataError(fmt::format("{}: text after the end of the array; remove it", name));
  return row;
}

size_t read_json_file(const std::filesystem::path& path, JsonLayout layout, const RecordSink& sink) {
  const MappedFile file(path);
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  return read_json_records(text, layout, path.string(), sink);
}

}  // namespace

size_t read_json_records(std::string_view text, JsonLayout layout, const std::string& name, const RecordSink& sink) {
  text = without_byte_order_mark(text);
  return layout == JsonLayout::kLines ? read_lines(text, name, sink) : read_array(text, name, sink);
}

size_t read_records(const std::filesystem::path& path, const Columns& wanted, const RecordSink& sink) {
  const auto extension = path.extension();
  if (extension == ".parquet") return read_parquet_records(path, wanted, sink);
  if (extension == ".jsonl") return read_json_file(path, JsonLayout::kLines, sink);
  if (extension == ".json") return read_json_file(path, JsonLayout::kArray, sink);
  throw DataError(fmt::format("{}: cannot tell its format; name it .parquet, .jsonl or .json", path.string()));
}

std::vector<std::string> column_names(const std::filesystem::path& path) {
  if (path.extension() == ".parquet") return parquet_column_names(path);
  std::vector<std::string> names;
  read_records(path, {}, [&names](nlohmann::json&& record, size_t) {
    for (const auto& item : record.items()) names.push_back(item.key());
    return false;
  });
  return names;
}

}  // namespace tandem
