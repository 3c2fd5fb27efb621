// Parquet through Arrow C++: any encoding and codec Arrow knows, nested columns, dictionary and large_* types.
// Arrow's headers stay in parquet.cc. Values become JSON: structs objects, lists arrays, NaN and missing values null,
// dates, times and decimals their text.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "data/table.h"
#include "data/types.h"

namespace tandem {

size_t read_parquet_records(const std::filesystem::path& path, const Columns& wanted, const RecordSink& sink);
std::vector<std::string> parquet_column_names(const std::filesystem::path& path);

// A row of verl's schema, as its preparation scripts write it.
struct PromptRow {
  std::string data_source;
  std::vector<Message> messages;
  std::string ability;
  std::string ground_truth;  // reward_model.ground_truth
  // extra_info
  std::string split;
  int64_t index = 0;
  std::string answer;
  std::string question;
  std::string style = "rule";  // reward_model.style: scored by a "rule", or by a "model"
  // Preferences: the better and the worse reply. Dialogues: the whole.
  std::string chosen, rejected;
  std::vector<Message> conversation;
};

// Columns data_source, prompt: list<struct<content, role>>, ability, reward_model: struct<ground_truth, style>,
// extra_info: struct<answer, index, question, split>; where any row has them chosen and rejected, or
// messages: list<struct<content, role>>; snappy. Written beside the path and renamed.
void write_prompt_parquet(const std::filesystem::path& path, std::span<const PromptRow> rows);

}  // namespace tandem
