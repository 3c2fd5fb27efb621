#include "config/verl_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>
#include <vector>

#include "config/fields.h"

namespace tandem {
namespace {

const std::set<std::string, std::less<>>& honoured_keys() {
  static const std::set<std::string, std::less<>> keys = [] {
    Config config;
    std::set<std::string, std::less<>> out;
    for (const Field& field : list_fields(config).fields) out.insert(field.key);
    return out;
  }();
  return keys;
}

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] != b[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

std::string_view last_part(std::string_view key) { return key.substr(key.rfind('.') + 1); }

// The right name in the wrong section is one slip, as one wrong letter is.
size_t unlikeness(std::string_view key, std::string_view known) {
  const size_t whole = edit_distance(key, known);
  const size_t by_name = 2 * edit_distance(last_part(key), last_part(known)) + 1;
  return std::min(whole, by_name) * 1000 + whole;
}

}  // namespace

bool matches(std::string_view pattern, std::string_view key) {
  if (pattern.ends_with(".*") && matches(pattern.substr(0, pattern.size() - 2), key)) return true;
  size_t p = 0, k = 0, star = std::string_view::npos, resume = 0;
  while (k < key.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = k;
    } else if (p < pattern.size() && pattern[p] == key[k]) {
      ++p;
      ++k;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      k = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

KeyVerdict classify_key(std::string_view key, const Value& value) {
  const bool honoured = honoured_keys().contains(key);
  for (const RefusedKey& row : refused_keys()) {
    if (!matches(row.pattern, key)) continue;
    if (row.refuses(value)) return {KeyClass::kRefused, row.instead, row.pattern};
    if (!honoured) return {KeyClass::kAccepted, row.reason, row.pattern};
  }
  if (honoured) return {KeyClass::kHonoured, "", ""};
  for (const AcceptedKey& row : accepted_keys())
    if (matches(row.pattern, key)) return {KeyClass::kAccepted, row.reason, row.pattern};
  return {};
}

std::string rename_key(std::string_view key) {
  for (const RenamedKey& row : renamed_keys()) {
    if (row.old_key.ends_with('.') && key.starts_with(row.old_key))
      return std::string(row.new_key) + std::string(key.substr(row.old_key.size()));
    if (row.old_key.ends_with('.') && key == row.old_key.substr(0, row.old_key.size() - 1))
      return std::string(row.new_key.substr(0, row.new_key.size() - 1));
    if (key == row.old_key) return std::string(row.new_key);
  }
  return std::string(key);
}

std::string nearest_of(std::string_view key, std::span<const std::string_view> known) {
  std::string_view best;
  size_t least = std::numeric_limits<size_t>::max();
  for (const std::string_view other : known) {
    if (other.find('*') != std::string_view::npos) continue;
    if (const size_t score = unlikeness(key, other); score < least) least = score, best = other;
  }
  return std::string(best);
}

std::string nearest_key(std::string_view key) {
  std::vector<std::string_view> known(honoured_keys().begin(), honoured_keys().end());
  for (const AcceptedKey& row : accepted_keys()) known.push_back(row.pattern);
  for (const RefusedKey& row : refused_keys()) known.push_back(row.pattern);
  return nearest_of(key, known);
}

std::vector<std::string> drop_foreign_trackers(Value& loggers) {
  if (loggers.is_scalar() && !loggers.text.starts_with('['))
    loggers = {.kind = Value::Kind::kList, .items = {loggers}, .origin = loggers.origin};
  if (loggers.is_scalar()) loggers = parse_override_value(loggers.text, loggers.origin);
  std::vector<std::string> notes;
  std::erase_if(loggers.items, [&](const Value& item) {
    if (std::ranges::find(foreign_trackers(), item.text) == foreign_trackers().end()) return false;
    notes.push_back(
        fmt::format("trainer.logger: {} has no effect: metrics can go to console, file (JSON lines), tensorboard, "
                    "wandb, mlflow, swanlab and trackio",
                    item.text));
    return true;
  });
  return notes;
}

}  // namespace tandem
