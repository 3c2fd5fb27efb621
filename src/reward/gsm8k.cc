#include <algorithm>

#include "reward/rules.h"
#include "reward/text.h"

namespace tandem {
namespace {

constexpr std::string_view kNumberCharacters = "0123456789.,";

// How much of `text` matches `\-?[0-9\.\,]+` from its start; 0 when it does not match.
size_t number_length(std::string_view text) {
  const size_t sign = text.starts_with('-') ? 1 : 0;
  const size_t end = std::min(text.find_first_not_of(kNumberCharacters, sign), text.size());
  return end > sign ? end : 0;
}

}  // namespace

std::optional<std::string> gsm8k_answer(std::string_view solution) {
  constexpr std::string_view kMarker = "#### ";
  for (size_t at = solution.rfind(kMarker); at != solution.npos;
       at = at ? solution.rfind(kMarker, at - 1) : solution.npos) {
    const std::string_view rest = solution.substr(at + kMarker.size());
    if (const size_t length = number_length(rest)) return replace_all(rest.substr(0, length), ",", "");
  }
  return std::nullopt;
}

std::optional<std::string> last_number(std::string_view solution) {
  size_t end = solution.size();
  while (end > 0) {
    const size_t last = solution.find_last_of(kNumberCharacters, end - 1);
    if (last == solution.npos) return std::nullopt;
    const size_t before = solution.find_last_not_of(kNumberCharacters, last);
    size_t begin = before == solution.npos ? 0 : before + 1;
    std::string number = replace_all(solution.substr(begin, last + 1 - begin), ",", "");
    while (number.ends_with('.')) number.pop_back();
    if (std::any_of(number.begin(), number.end(), is_digit))
      return begin > 0 && solution[begin - 1] == '-' ? "-" + number : number;
    end = begin;
  }
  return std::nullopt;
}

}  // namespace tandem
