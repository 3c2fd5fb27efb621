#include "base/text.h"
#include "reward/latex.h"
#include "reward/math_answer.h"
#include "reward/rules.h"
#include "reward/text.h"

namespace tandem {
namespace {

constexpr size_t kMaxParsed = 2048;  // bytes

std::optional<MathAnswer> parsed(std::string_view text, Commas commas) {
  const auto tokens = math_tokens(text, commas);
  return tokens ? parse_answer(*tokens) : std::nullopt;
}

bool has_parted_digits(std::string_view text) {
  bool after_digit = false, parted = false;
  for (const char c : text) {
    if (is_digit(c) && parted) return true;
    parted = (after_digit || parted) && c == ' ';
    after_digit = is_digit(c);
  }
  return false;
}

}  // namespace

bool math_equal(std::string_view answer, std::string_view truth) {
  if (stripped(answer) == stripped(truth)) return true;
  if (answer.size() <= kMaxParsed && truth.size() <= kMaxParsed) {
    bool known = false;
    for (const Commas commas : {Commas::kThousands, Commas::kSeparators}) {
      const auto a = parsed(answer, commas), b = parsed(truth, commas);
      if (a && b && same_answer(*a, *b)) return true;
      known |= a && b;
    }
    if (known) return false;
  }
  if (has_parted_digits(answer) || has_parted_digits(truth)) return false;  // verl would read "1 2" as 12
  const std::string a = normalize_latex(answer), b = normalize_latex(truth);
  return !a.empty() && a == b;
}

}  // namespace tandem
