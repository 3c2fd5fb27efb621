#include "config/fields.h"

#include <algorithm>
#include <initializer_list>

namespace tandem {
namespace {

template <class S>
void collect(S& section, const std::string& prefix, FieldList& out) {
  section.fields([&](std::string_view name, auto& member, std::string_view doc,
                     std::initializer_list<std::string_view> choices = {}) {
    std::string key = prefix + std::string(name);
    if constexpr (std::is_constructible_v<FieldPointer, decltype(&member)>) {
      out.fields.push_back({std::move(key), std::string(doc), {choices.begin(), choices.end()}, &member});
    } else {
      out.sections.push_back({key, std::string(doc)});
      collect(member, key + ".", out);
    }
  });
}

}  // namespace

FieldList list_fields(Config& config) {
  FieldList out;
  collect(config, "", out);
  return out;
}

FieldList list_fields(TuningConfig& config) {
  FieldList out;
  collect(config, "", out);
  return out;
}

bool Field::is_list() const {
  return std::holds_alternative<std::vector<std::string>*>(member) ||
         std::holds_alternative<std::vector<int64_t>*>(member) || std::holds_alternative<std::vector<double>*>(member);
}

const Field* FieldList::find(std::string_view key) const {
  const auto it = std::ranges::find(fields, key, &Field::key);
  return it == fields.end() ? nullptr : &*it;
}

bool FieldList::is_section(std::string_view key) const {
  return std::ranges::find(sections, key, &Section::key) != sections.end();
}

}  // namespace tandem
