#include "text/control_guard.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "text/utf8.h"

namespace tandem {
namespace {

// Ideographs of CJK extension F: rare, printable as they are, and changed by no string method.
constexpr uint32_t kFirstStandIn = 0x2CEB0, kLastStandIn = 0x2EBE0;

std::string four_bytes(uint32_t code_point) {
  const auto tail = [&](int shift) { return static_cast<char>(0x80 | ((code_point >> shift) & 0x3F)); };
  return {static_cast<char>(0xF0 | (code_point >> 18)), tail(12), tail(6), tail(0)};
}

size_t size_without_blanks(std::string_view text) {
  const size_t last = text.find_last_not_of(" \t\n\r\f\v");
  return last == std::string_view::npos ? 0 : last + 1;
}

}  // namespace

ControlGuard::ControlGuard(const Tokenizer& tokenizer) {
  for (const AddedToken& token : tokenizer.added_tokens())
    if (!token.text.empty()) by_first_byte_[static_cast<uint8_t>(token.text[0])].push_back(&token);
  for (auto& tokens : by_first_byte_)
    std::ranges::stable_sort(tokens, std::ranges::greater(),
                             [](const AddedToken* token) { return token->text.size(); });
}

bool ControlGuard::mark(nlohmann::ordered_json& data, std::string_view surroundings) {
  used_text_ = data.dump() + std::string(surroundings);
  marked_ = false;
  const auto visit = [this](const auto& self, nlohmann::ordered_json& value) -> void {
    if (value.is_string()) {
      value = mark_string(value.get_ref<const std::string&>());
    } else if (value.is_array()) {
      for (auto& item : value) self(self, item);
    } else if (value.is_object()) {
      auto marked = nlohmann::ordered_json::object();
      for (auto& [key, item] : value.items()) {
        self(self, item);
        marked[mark_string(key)] = std::move(item);
      }
      value = std::move(marked);
    }
  };
  visit(visit, data);
  return marked_;
}

std::string ControlGuard::mark_string(std::string_view text) {
  const size_t trimmed_size = size_without_blanks(text);
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const std::string_view rest = text.substr(i);
    const size_t length = std::max<size_t>(1, utf8_length(rest));
    if (starts_spelling(rest, trimmed_size > i ? trimmed_size - i : 0)) {
      out += stand_in(rest.substr(0, length));
      marked_ = true;
    } else {
      out += rest.substr(0, length);
    }
    i += length;
  }
  return out;
}

// `text` begins with a control token's spelling, or is, but for blanks at its end, the beginning of one.
bool ControlGuard::starts_spelling(std::string_view text, size_t trimmed_size) const {
  const std::string_view trimmed = text.substr(0, trimmed_size);
  return std::ranges::any_of(by_first_byte_[static_cast<uint8_t>(text[0])], [&](const AddedToken* token) {
    const bool cut = !trimmed.empty() && std::string_view(token->text).starts_with(trimmed);
    return token->control && (text.starts_with(token->text) || cut);
  });
}

const std::string& ControlGuard::stand_in(std::string_view character) {
  for (const auto& [original, replacement] : stand_ins_)
    if (original == character) return replacement;
  for (uint32_t candidate = kFirstStandIn; candidate <= kLastStandIn; ++candidate) {
    const std::string replacement = four_bytes(candidate);
    if (used_text_.find(replacement) != std::string::npos) continue;
    used_text_ += replacement;
    return stand_ins_.emplace_back(character, replacement).second;
  }
  throw DataError("the messages use every ideograph of CJK extension F; remove some");
}

const AddedToken* ControlGuard::longest_match(std::string_view text) const {
  const auto& tokens = by_first_byte_[static_cast<uint8_t>(text[0])];
  const auto found =
      std::ranges::find_if(tokens, [&](const AddedToken* token) { return text.starts_with(token->text); });
  return found == tokens.end() ? nullptr : *found;
}

ControlGuard::Restored ControlGuard::restore(std::string_view rendered) const {
  Restored restored;
  while (!rendered.empty()) {
    size_t taken = 1;
    std::string_view kept = rendered.substr(0, 1);
    if (const AddedToken* token = longest_match(rendered)) {
      taken = token->text.size();
      kept = rendered.substr(0, taken);
      if (token->control) restored.controls.push_back({restored.text.size(), restored.text.size() + taken});
    }
    for (const auto& [original, replacement] : stand_ins_) {
      if (!rendered.starts_with(replacement)) continue;
      taken = replacement.size();
      kept = original;
    }
    restored.text += kept;
    rendered.remove_prefix(taken);
  }
  return restored;
}

}  // namespace tandem
