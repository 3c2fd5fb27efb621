#include "data/parquet.h"

#include <arrow/api.h>
#include <arrow/io/file.h>
#include <arrow/util/utf8.h>
#include <fmt/format.h>
#include <parquet/arrow/reader.h>
#include <parquet/arrow/schema.h>
#include <parquet/arrow/writer.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"

namespace tandem {
namespace {

using nlohmann::json;

// Arrow's own message goes into ours; it may hold line breaks.
std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

void require(const arrow::Status& status, const std::filesystem::path& path) {
  if (!status.ok()) throw IoError(fmt::format("{}: {}", path.string(), one_line(status.message())));
}

template <class T>
T require(arrow::Result<T> result, const std::filesystem::path& path) {
  require(result.status(), path);
  return std::move(result).ValueUnsafe();
}

json text_value(std::string_view text) {
  if (!arrow::util::ValidateUTF8(text)) throw DataError("text that is not UTF-8");
  return text;
}

json number_value(double value) { return std::isnan(value) ? json() : json(value); }

json value_at(const arrow::Array& array, int64_t i);

template <class ListArray>
json list_at(const arrow::Array& array, int64_t i) {
  const auto& list = static_cast<const ListArray&>(array);
  json values = json::array();
  for (int64_t k = 0; k < list.value_length(i); ++k)
    values.push_back(value_at(*list.values(), list.value_offset(i) + k));
  return values;
}

json struct_at(const arrow::Array& array, int64_t i) {
  const auto& fields = static_cast<const arrow::StructArray&>(array);
  json object = json::object();
  for (int f = 0; f < fields.num_fields(); ++f)
    object[fields.struct_type()->field(f)->name()] = value_at(*fields.field(f), i);
  return object;
}

template <class TypedArray>
auto plain(const arrow::Array& array, int64_t i) {
  return static_cast<const TypedArray&>(array).Value(i);
}

template <class TypedArray>
json text_at(const arrow::Array& array, int64_t i) {
  return text_value(static_cast<const TypedArray&>(array).GetView(i));
}

json value_at(const arrow::Array& array, int64_t i) {
  if (array.IsNull(i)) return nullptr;
  switch (array.type_id()) {
    case arrow::Type::BOOL:
      return plain<arrow::BooleanArray>(array, i);
    case arrow::Type::INT8:
      return plain<arrow::Int8Array>(array, i);
    case arrow::Type::INT16:
      return plain<arrow::Int16Array>(array, i);
    case arrow::Type::INT32:
      return plain<arrow::Int32Array>(array, i);
    case arrow::Type::INT64:
      return plain<arrow::Int64Array>(array, i);
    case arrow::Type::UINT8:
      return plain<arrow::UInt8Array>(array, i);
    case arrow::Type::UINT16:
      return plain<arrow::UInt16Array>(array, i);
    case arrow::Type::UINT32:
      return plain<arrow::UInt32Array>(array, i);
    case arrow::Type::UINT64:
      return plain<arrow::UInt64Array>(array, i);
    case arrow::Type::FLOAT:
      return number_value(plain<arrow::FloatArray>(array, i));
    case arrow::Type::DOUBLE:
      return number_value(plain<arrow::DoubleArray>(array, i));
    case arrow::Type::STRING:
    case arrow::Type::BINARY:
      return text_at<arrow::BinaryArray>(array, i);
    case arrow::Type::LARGE_STRING:
    case arrow::Type::LARGE_BINARY:
      return text_at<arrow::LargeBinaryArray>(array, i);
    case arrow::Type::STRING_VIEW:
    case arrow::Type::BINARY_VIEW:
      return text_at<arrow::BinaryViewArray>(array, i);
    case arrow::Type::LIST:
    case arrow::Type::MAP:
      return list_at<arrow::ListArray>(array, i);
    case arrow::Type::LARGE_LIST:
      return list_at<arrow::LargeListArray>(array, i);
    case arrow::Type::FIXED_SIZE_LIST:
      return list_at<arrow::FixedSizeListArray>(array, i);
    case arrow::Type::STRUCT:
      return struct_at(array, i);
    case arrow::Type::DICTIONARY: {
      const auto& dictionary = static_cast<const arrow::DictionaryArray&>(array);
      return value_at(*dictionary.dictionary(), dictionary.GetValueIndex(i));
    }
    case arrow::Type::EXTENSION:
      return value_at(*static_cast<const arrow::ExtensionArray&>(array).storage(), i);
    default: {  // dates, times, decimals, half floats
      const auto scalar = array.GetScalar(i);
      if (!scalar.ok()) throw DataError(one_line(scalar.status().message()));
      return text_value((*scalar)->ToString());
    }
  }
}

std::unique_ptr<parquet::arrow::FileReader> open_reader(const std::filesystem::path& path) {
  // The system's allocator gives freed row groups back; Arrow's default keeps them.
  arrow::MemoryPool* pool = arrow::system_memory_pool();
  auto file = require(arrow::io::ReadableFile::Open(path.string(), pool), path);
  parquet::ArrowReaderProperties properties(/*use_threads=*/false);
  properties.set_batch_size(1024);
  properties.set_pre_buffer(false);
  parquet::arrow::FileReaderBuilder builder;
  require(builder.Open(std::move(file)), path);
  return require(builder.memory_pool(pool)->properties(properties)->Build(), path);
}

// Leaf columns whose outermost name is wanted.
std::vector<int> leaves_of(const parquet::SchemaDescriptor& schema, const Columns& wanted) {
  std::vector<int> leaves;
  for (int leaf = 0; leaf < schema.num_columns(); ++leaf) {
    const std::string& root = schema.GetColumnRoot(leaf)->name();
    if (wanted.empty() || std::find(wanted.begin(), wanted.end(), root) != wanted.end()) leaves.push_back(leaf);
  }
  return leaves;
}

json record_at(const arrow::RecordBatch& batch, int64_t i, const std::filesystem::path& path, size_t row) {
  json record = json::object();
  for (int c = 0; c < batch.num_columns(); ++c) {
    try {
      record[batch.column_name(c)] = value_at(*batch.column(c), i);
    } catch (const DataError& error) {
      throw DataError(fmt::format("{} row {}: column '{}' holds {}; correct the file", path.string(), row,
                                  batch.column_name(c), error.what()));
    }
  }
  return record;
}

size_t read_batches(const std::filesystem::path& path, const Columns& wanted, const RecordSink& sink) {
  const auto reader = open_reader(path);
  const parquet::FileMetaData& metadata = *reader->parquet_reader()->metadata();
  const std::vector<int> leaves = leaves_of(*metadata.schema(), wanted);
  size_t row = 0;
  if (leaves.empty()) {  // none of the columns: rows without fields, for the caller to complain about
    for (const size_t rows = metadata.num_rows(); row < rows;)
      if (!sink(json::object(), row++)) break;
    return row;
  }
  std::vector<int> row_groups(metadata.num_row_groups());
  for (size_t g = 0; g < row_groups.size(); ++g) row_groups[g] = static_cast<int>(g);
  const auto batches = require(reader->GetRecordBatchReader(row_groups, leaves), path);
  std::shared_ptr<arrow::RecordBatch> batch;
  for (;;) {
    require(batches->ReadNext(&batch), path);
    if (!batch) return row;
    for (int64_t i = 0; i < batch->num_rows(); ++i) {
      auto record = record_at(*batch, i, path, row);
      if (!sink(std::move(record), row++)) return row;
    }
  }
}

std::shared_ptr<arrow::Array> strings(std::span<const PromptRow> rows, std::string PromptRow::*field) {
  arrow::StringBuilder builder;
  for (const PromptRow& row : rows) check(builder.Append(row.*field).ok(), "Arrow cannot append text");
  return builder.Finish().ValueOrDie();
}

std::shared_ptr<arrow::Array> structs(const std::vector<std::shared_ptr<arrow::Array>>& children,
                                      const std::vector<std::string>& names) {
  return arrow::StructArray::Make(children, names).ValueOrDie();
}

std::shared_ptr<arrow::Array> message_lists(std::span<const PromptRow> rows, std::vector<Message> PromptRow::*field) {
  arrow::StringBuilder content, role;
  arrow::Int32Builder offsets;
  int32_t count = 0;
  bool ok = offsets.Append(0).ok();
  for (const PromptRow& row : rows) {
    for (const Message& message : row.*field)
      ok = ok && content.Append(message.content).ok() && role.Append(message.role).ok();
    count += static_cast<int32_t>((row.*field).size());
    ok = ok && offsets.Append(count).ok();
  }
  check(ok, "Arrow cannot append messages");
  const auto values = structs({content.Finish().ValueOrDie(), role.Finish().ValueOrDie()}, {"content", "role"});
  return arrow::ListArray::FromArrays(*offsets.Finish().ValueOrDie(), *values).ValueOrDie();
}

std::shared_ptr<arrow::Table> prompt_table(std::span<const PromptRow> rows) {
  arrow::Int64Builder index;
  for (const PromptRow& row : rows) check(index.Append(row.index).ok(), "Arrow cannot append a row");
  const auto reward_model =
      structs({strings(rows, &PromptRow::ground_truth), strings(rows, &PromptRow::style)}, {"ground_truth", "style"});
  const auto extra_info = structs({strings(rows, &PromptRow::answer), index.Finish().ValueOrDie(),
                                   strings(rows, &PromptRow::question), strings(rows, &PromptRow::split)},
                                  {"answer", "index", "question", "split"});
  std::vector<std::pair<std::string, std::shared_ptr<arrow::Array>>> columns = {
      {"data_source", strings(rows, &PromptRow::data_source)},
      {"prompt", message_lists(rows, &PromptRow::messages)},
      {"ability", strings(rows, &PromptRow::ability)},
      {"reward_model", reward_model},
      {"extra_info", extra_info}};
  if (std::any_of(rows.begin(), rows.end(), [](const PromptRow& row) { return !row.chosen.empty(); })) {
    columns.emplace_back("chosen", strings(rows, &PromptRow::chosen));
    columns.emplace_back("rejected", strings(rows, &PromptRow::rejected));
  }
  if (std::any_of(rows.begin(), rows.end(), [](const PromptRow& row) { return !row.conversation.empty(); }))
    columns.emplace_back("messages", message_lists(rows, &PromptRow::conversation));
  std::vector<std::shared_ptr<arrow::Field>> fields;
  std::vector<std::shared_ptr<arrow::Array>> arrays;
  for (const auto& [name, array] : columns) {
    fields.push_back(arrow::field(name, array->type()));
    arrays.push_back(array);
  }
  return arrow::Table::Make(arrow::schema(fields), arrays);
}

}  // namespace

size_t read_parquet_records(const std::filesystem::path& path, const Columns& wanted, const RecordSink& sink) {
  arrow::util::InitializeUTF8();
  try {
    return read_batches(path, wanted, sink);
  } catch (const parquet::ParquetException& error) {
    throw IoError(fmt::format("{}: {}; the file is damaged or no Parquet file", path.string(), one_line(error.what())));
  }
}

std::vector<std::string> parquet_column_names(const std::filesystem::path& path) {
  const auto reader = open_reader(path);
  const auto& root = *reader->parquet_reader()->metadata()->schema()->group_node();
  std::vector<std::string> names;
  for (int i = 0; i < root.field_count(); ++i) names.push_back(root.field(i)->name());
  return names;
}

void write_prompt_parquet(const std::filesystem::path& path, std::span<const PromptRow> rows) {
  const auto properties = parquet::WriterProperties::Builder().compression(parquet::Compression::SNAPPY)->build();
  const std::filesystem::path temporary = path.string() + fmt::format(".{}.tmp", getpid());
  const auto file = require(arrow::io::FileOutputStream::Open(temporary.string()), path);
  const auto table = prompt_table(rows);
  require(parquet::arrow::WriteTable(*table, arrow::default_memory_pool(), file, 1024, properties), path);
  require(file->Close(), path);
  sync_path(temporary);
  std::filesystem::rename(temporary, path);
  sync_path(path.parent_path().empty() ? "." : path.parent_path());
}

}  // namespace tandem
