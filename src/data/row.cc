#include "data/row.h"

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace tandem {
namespace {

using nlohmann::json;

constexpr std::array kMediaColumns = {"images", "videos", "audios"};

[[noreturn]] void refuse(const std::string& column, const std::string& what) {
  throw DataError(fmt::format("column '{}' {}", column, what));
}

std::string text_of(const json& message, const char* key, size_t index, const std::string& column) {
  const json* value = find_value(message, key);
  if (!value) refuse(column, fmt::format("has no '{}' in message {}; each message needs role and content", key, index));
  if (!value->is_string())
    refuse(column, fmt::format("has {} as '{}' of message {}; only text is supported", value->type_name(), key, index));
  return value->get<std::string>();
}

std::string parse_data_source(const json& record, const RowSchema& schema) {
  const json* value = find_value(record, schema.reward_fn_key);
  if (!value && !schema.scored) return {};
  if (!value) refuse(schema.reward_fn_key, "is absent or null; name the column of data sources by data.reward_fn_key");
  if (!value->is_string()) refuse(schema.reward_fn_key, fmt::format("is {}; it must be text", value->type_name()));
  return value->get<std::string>();
}

std::string parse_ground_truth(const json& record, bool scored) {
  const json* model = find_value(record, "reward_model");
  if (model && !model->is_object())
    refuse("reward_model", fmt::format("is {}; it must be {{style, ground_truth}}", model->type_name()));
  const json* truth = model ? find_value(*model, "ground_truth") : nullptr;
  if (truth) return truth->is_string() ? truth->get<std::string>() : truth->dump();
  if (scored) refuse("reward_model", "has no ground_truth; every row that is scored needs one");
  return {};
}

std::string parse_extra_info(const json& record) {
  const json* info = find_value(record, "extra_info");
  if (!info) return "{}";
  if (!info->is_object()) refuse("extra_info", fmt::format("is {}; it must be an object", info->type_name()));
  return info->dump();
}

void refuse_media(const json& record) {
  for (const char* column : kMediaColumns) {
    const json* media = find_value(record, column);
    if (media && !media->empty()) refuse(column, "holds media; only text prompts are supported, remove the row");
  }
}

}  // namespace

const json* find_value(const json& object, std::string_view key) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

std::vector<Message> parse_messages(const json& record, const std::string& column) {
  const json* list = find_value(record, column);
  if (!list) refuse(column, "is absent or null; name the column of messages by data.prompt_key");
  if (!list->is_array())
    refuse(column, fmt::format("is {}; it must be a list of {{role, content}} messages", list->type_name()));
  if (list->empty()) refuse(column, "is an empty list; a prompt needs at least one message");
  std::vector<Message> messages;
  for (size_t i = 0; i < list->size(); ++i) {
    const json& message = (*list)[i];
    if (!message.is_object())
      refuse(column, fmt::format("has {} as message {}; each message needs role and content", message.type_name(), i));
    messages.push_back({text_of(message, "role", i, column), text_of(message, "content", i, column)});
  }
  return messages;
}

Columns RowSchema::columns() const {
  Columns columns = {prompt_key, reward_fn_key, "reward_model", "extra_info"};
  columns.insert(columns.end(), kMediaColumns.begin(), kMediaColumns.end());
  return columns;
}

Prompt parse_row(const json& record, const RowSchema& schema) {
  refuse_media(record);
  Prompt prompt;
  prompt.messages = parse_messages(record, schema.prompt_key);
  prompt.data_source = parse_data_source(record, schema);
  prompt.ground_truth = parse_ground_truth(record, schema.scored);
  prompt.extra_info = parse_extra_info(record);
  return prompt;
}

}  // namespace tandem
