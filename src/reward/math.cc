#include <algorithm>
#include <array>

#include "reward/latex.h"
#include "reward/rules.h"
#include "reward/text.h"

namespace tandem {
namespace {

constexpr std::array<std::string_view, 2> kBoxes = {"\\boxed", "\\fbox"};

// What follows the last box macro that starts before `before`; `at` is told where it starts (npos if there is none).
std::string_view last_box(std::string_view text, size_t before, size_t* at) {
  *at = text.npos;
  std::string_view rest;
  for (const std::string_view name : kBoxes) {
    const size_t found = before == 0 ? text.npos : text.rfind(name, before - 1);
    if (found == text.npos || (*at != text.npos && found < *at)) continue;
    *at = found;
    rest = text.substr(found + name.size());
  }
  return rest;
}

std::string_view without_leading_blanks(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  return text;
}

}  // namespace

std::optional<std::string> boxed_answer(std::string_view solution) {
  std::optional<std::string> unbraced;
  size_t at = solution.size();
  for (std::string_view rest = last_box(solution, at, &at); at != solution.npos; rest = last_box(solution, at, &at)) {
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

bool math_equal(std::string_view answer, std::string_view truth) {
  const std::string a = normalize_latex(answer), b = normalize_latex(truth);
  if (a.empty() || b.empty()) return answer == truth;
  if (a == b) return true;
  const auto x = latex_number(a), y = latex_number(b);
  return x && y && *x == *y;
}

}  // namespace tandem
