#include "data/boxed.h"

#include <algorithm>
#include <array>

#include "base/text.h"

namespace tandem {
namespace {

constexpr std::array<std::string_view, 2> kBoxes = {"\\boxed", "\\fbox"};

// Where the last box macro starts that starts before `before`, and what follows its name; npos if there is none.
size_t last_box(std::string_view text, size_t before, std::string_view* rest) {
  while (before > 0) {
    const size_t at = text.rfind('\\', before - 1);
    if (at == text.npos) break;
    for (const std::string_view name : kBoxes) {
      *rest = text.substr(at);
      if (!rest->starts_with(name)) continue;
      rest->remove_prefix(name.size());
      return at;
    }
    before = at;
  }
  return text.npos;
}

std::string_view without_leading_blanks(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  return text;
}

}  // namespace

std::optional<std::string> boxed_answer(std::string_view solution) {
  std::optional<std::string> unbraced;
  std::string_view rest;
  for (size_t at = last_box(solution, solution.size(), &rest); at != solution.npos;
       at = last_box(solution, at, &rest)) {
    const std::string_view content = without_leading_blanks(rest);
    if (content.starts_with('{')) {
      const size_t close = closing_brace(content, 0);
      if (close == content.npos) return std::nullopt;
      return std::string(content.substr(1, close - 1));
    }
    if (!unbraced && rest.starts_with(' ')) {
      const auto line = stripped(content.substr(0, std::min(content.find_first_of("$\n"), content.size())));
      if (!line.empty()) unbraced = std::string(line);
    }
  }
  return unbraced;
}

size_t closing_brace(std::string_view text, size_t open) {
  int depth = 0;
  for (size_t i = open; i < text.size(); ++i) {
    if (text[i] == '\\') {
      ++i;  // an escaped brace, or the name of a macro
    } else if (text[i] == '{') {
      ++depth;
    } else if (text[i] == '}' && --depth == 0) {
      return i;
    }
  }
  return text.npos;
}

}  // namespace tandem
