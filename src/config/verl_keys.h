// What becomes of each of verl's keys: honoured (a member of Config), accepted without effect (and why), or refused
// (and what to use instead). The three lists are data; supporting one more key means moving its line.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/value.h"

namespace tandem {

// In patterns * stands for any text; "a.b.*" also matches "a.b" itself.
struct AcceptedKey {
  std::string_view pattern;
  std::string_view reason;
};

struct RefusedKey {
  std::string_view pattern;
  bool (*refuses)(const Value& value);
  std::string_view values;   // which values are refused, in words; empty: all
  std::string_view instead;  // what to do
  std::string_view reason;   // why the other values have no effect; empty if the key is honoured
};

struct RenamedKey {
  std::string_view old_key;  // a whole key, or a section when it ends in '.'
  std::string_view new_key;
};

struct ChangedDefault {
  std::string_view key;
  std::string_view verl_default;
  std::string_view reason;
};

std::span<const AcceptedKey> accepted_keys();
std::span<const RefusedKey> refused_keys();
std::span<const RenamedKey> renamed_keys();
std::span<const ChangedDefault> changed_defaults();

// verl's metric trackers that trainer.logger may name without effect.
std::span<const std::string_view> foreign_trackers();
// Makes the value of trainer.logger a list without them, and a note of each.
std::vector<std::string> drop_foreign_trackers(Value& loggers);

enum class KeyClass : uint8_t { kHonoured, kAccepted, kRefused, kUnknown };
struct KeyVerdict {
  KeyClass key_class = KeyClass::kUnknown;
  std::string_view text;     // the reason of kAccepted, the advice of kRefused
  std::string_view pattern;  // the row of the list that decided, if one did
};
// `value` with interpolations filled in. Old names are to be renamed first.
KeyVerdict classify_key(std::string_view key, const Value& value);

// The key's present name.
std::string rename_key(std::string_view key);

// The key of `known` that is most like `key`; patterns are passed over.
std::string nearest_of(std::string_view key, std::span<const std::string_view> known);
// The same among all of verl's and Tandem's.
std::string nearest_key(std::string_view key);

bool matches(std::string_view pattern, std::string_view key);

}  // namespace tandem
