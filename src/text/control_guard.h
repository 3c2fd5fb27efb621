// Keeps apart the control tokens that a chat template spells from those that its messages spell.
//
// Before rendering, the first character of every control-token spelling in the messages is replaced by a stand-in: a
// character that occurs nowhere else. Afterwards a spelling found in the rendered text can only be the template's own,
// and restore() puts the characters back. One character stands for one, so lengths and slices in a template are
// unchanged. A spelling cut in two at the end of a string is marked as well, lest two strings printed one after the
// other join to a whole one.
#pragma once

#include <array>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/tokenizer.h"

namespace tandem {

class ControlGuard {
 public:
  // The guard refers to the tokenizer's added tokens.
  explicit ControlGuard(const Tokenizer& tokenizer);

  // Marks all strings and keys of `data`; false when there was nothing to mark. `surroundings` is all other text that
  // the rendered string may hold: stand-ins are not taken from it.
  bool mark(nlohmann::ordered_json& data, std::string_view surroundings);

  struct Restored {
    std::string text;
    std::vector<TextSpan> controls;  // the template's own, as positions in `text`
  };
  Restored restore(std::string_view rendered) const;

 private:
  std::string mark_string(std::string_view text);
  bool starts_spelling(std::string_view text, size_t trimmed_size) const;
  const AddedToken* longest_match(std::string_view text) const;
  const std::string& stand_in(std::string_view character);

  std::array<std::vector<const AddedToken*>, 256> by_first_byte_;  // longest first
  std::vector<std::pair<std::string, std::string>> stand_ins_;     // character, what stands for it
  std::string used_text_;
  bool marked_ = false;
};

}  // namespace tandem
