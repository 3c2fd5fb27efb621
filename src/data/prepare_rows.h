// From the records of well-known data sets to rows of verl's schema: what prepare_dataset() runs for each.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "data/parquet.h"
#include "data/table.h"

namespace tandem {

struct Unusable {
  std::string reason;
};
using RowOrReason = std::variant<PromptRow, Unusable>;

struct DatasetReader {
  std::string_view name, summary;
  Columns columns;  // what is read of a file; empty: all
  // Split and index are filled in by the caller.
  RowOrReason (*row)(const nlohmann::json& record);
};
const std::vector<DatasetReader>& dataset_readers();

}  // namespace tandem
