// A record in verl's schema, checked and made compact.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "data/table.h"
#include "data/types.h"

namespace tandem {

struct RowSchema {
  std::string prompt_key = "prompt";
  std::string reward_fn_key = "data_source";
  bool scored = true;  // data_source and reward_model.ground_truth must be there

  Columns columns() const;
};

// What stands at `key`; null where it is absent or null. `object` must be an object.
const nlohmann::json* find_value(const nlohmann::json& object, std::string_view key);

// A column that holds a list of {role, content}. DataError as parse_row().
std::vector<Message> parse_messages(const nlohmann::json& record, const std::string& column);

// Fills everything of a Prompt but id and token_ids. DataError says what is wrong with which column, without the place:
// the caller knows file and row.
Prompt parse_row(const nlohmann::json& record, const RowSchema& schema);

}  // namespace tandem
