// The JSON readers and the row parser on arbitrary bytes: only tandem::Error may come out.
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/error.h"
#include "data/row.h"
#include "data/table.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const auto layout : {tandem::JsonLayout::kLines, tandem::JsonLayout::kArray}) {
    try {
      tandem::read_json_records(text, layout, "fuzz", [](nlohmann::json&& record, size_t) {
        tandem::parse_row(record, {});
        return true;
      });
    } catch (const tandem::Error&) {
    }
  }
  return 0;
}
