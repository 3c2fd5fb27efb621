// Tables on disk, read record by record: Parquet (.parquet), JSON lines (.jsonl) and a JSON array (.json). A record is
// one row as a JSON object; only one is alive at a time, so a file costs memory for what its reader keeps.
// Errors name file, row (0-based within the file), column and what to do: IoError for the file, DataError for a row.
#pragma once

#include <filesystem>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace tandem {

// Gets each record with its 0-based row; returning false ends the reading.
using RecordSink = std::function<bool(nlohmann::json&& record, size_t row)>;

// What to read of each row. Columns that a file lacks are simply absent from the records. Empty: every column.
// JSON files are parsed whole rows at a time whatever is wanted.
using Columns = std::vector<std::string>;

// Chooses the reader by the ending of the name. Returns the number of records handed to `sink`.
size_t read_records(const std::filesystem::path& path, const Columns& wanted, const RecordSink& sink);

// The names of the columns: of the schema for Parquet, of the first row for JSON.
std::vector<std::string> column_names(const std::filesystem::path& path);

enum class JsonLayout {
  kLines,  // one object a line; blank lines are skipped
  kArray,  // one array of objects
};

// The JSON readers on text in memory; `name` stands for the file in errors.
size_t read_json_records(std::string_view text, JsonLayout layout, const std::string& name, const RecordSink& sink);

}  // namespace tandem
