// The field lists of config.h and tuning_config.h as one flat list, so that loading, printing and documenting are
// ordinary loops.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "config/config.h"
#include "config/tuning_config.h"
#include "config/value.h"

namespace tandem {

using FieldPointer = std::variant<bool*, int64_t*, double*, std::string*, std::optional<bool>*, std::optional<int64_t>*,
                                  std::optional<double>*, std::optional<std::string>*, std::vector<std::string>*,
                                  std::vector<int64_t>*, std::vector<double>*, JsonText*>;

struct Field {
  std::string key;  // dotted, from the root
  std::string doc;
  std::vector<std::string> choices;  // empty: any
  FieldPointer member;               // into the Config that was listed

  bool is_dict() const { return std::holds_alternative<JsonText*>(member); }
  bool is_list() const;
};

struct Section {
  std::string key;
  std::string doc;
};

struct FieldList {
  std::vector<Field> fields;
  std::vector<Section> sections;

  const Field* find(std::string_view key) const;
  bool is_section(std::string_view key) const;
};
FieldList list_fields(Config& config);
FieldList list_fields(TuningConfig& config);

// Sets the field from what the user wrote, interpolations already filled in. ConfigError names place, key, value and
// what is expected. A scalar given for a list is a list of one.
void assign(const Field& field, const Value& value);

// The field's value as one line of YAML that load_config reads back to the same value.
std::string field_text(const Field& field);

// What assign() accepts, in words: "a whole number", "one of a, b", ...
std::string expected_text(const Field& field);

}  // namespace tandem
