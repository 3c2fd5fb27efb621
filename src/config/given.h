// Everything the user set, as dotted keys, whatever file or override it came from. The last one to set a key wins.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "config/fields.h"
#include "config/interpolate.h"
#include "config/value.h"

namespace tandem {

class GivenKeys {
 public:
  // Dicts are taken apart: {a: {b: 1}} sets a.b. Old names of keys become the present ones.
  void set(std::string_view key, const Value& value);
  void apply(const Override& change);

  const std::map<std::string, Value, std::less<>>& values() const { return values_; }

  // What stands at `key`: a value, or the dict of what lies under it; nothing if unset or "???".
  std::optional<Value> find(std::string_view key) const;

 private:
  void set_leaf(const std::string& key, const Value& value);
  void erase_under(std::string_view key);

  std::map<std::string, Value, std::less<>> values_;
};

}  // namespace tandem
