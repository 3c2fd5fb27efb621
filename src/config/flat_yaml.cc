#include "config/flat_yaml.h"

#include "config/value.h"

namespace tandem {
namespace {

using Entries = std::vector<std::pair<std::string, std::string>>;

void add(Entries& out, const std::string& key, const Value& value) {
  if (value.kind != Value::Kind::kDict || value.entries.empty()) {
    out.emplace_back(key, to_text(value));
    return;
  }
  for (const DictEntry& entry : value.entries)
    add(out, key.empty() ? entry.first : key + "." + entry.first, entry.second);
}

}  // namespace

Entries flat_yaml(std::string_view text, std::string_view name) {
  Entries out;
  const Value whole = parse_yaml(text, name);
  if (whole.kind == Value::Kind::kDict)
    for (const DictEntry& entry : whole.entries) add(out, entry.first, entry.second);
  return out;
}

}  // namespace tandem
