#include <algorithm>
#include <array>
#include <utility>

#include "base/text.h"
#include "reward/rules.h"
#include "reward/text.h"

namespace tandem {
namespace {

constexpr std::array<std::pair<std::string_view, std::string_view>, 10> kSubstitutions = {{
    {"an ", ""},
    {"a ", ""},
    {".$", "$"},
    {"\\$", ""},
    {"\\ ", ""},
    {" ", ""},
    {"mbox", "text"},
    {",\\text{and}", ","},
    {"\\text{and}", ","},
    {"\\text{m}", "\\text{}"},
}};

constexpr std::array<std::string_view, 41> kRemoved = {
    "square",     "ways",       "integers",  "dollars",      "mph",
    "inches",     "hours",      "km",        "units",        "\\ldots",
    "sue",        "points",     "feet",      "minutes",      "digits",
    "cents",      "degrees",    "cm",        "gm",           "pounds",
    "meters",     "meals",      "edges",     "students",     "childrentickets",
    "multiples",  "\\text{s}",  "\\text{.}", "\\text{\ns}",  "\\text{}^2",
    "\\text{}^3", "\\text{\n}", "\\text{}",  "\\mathrm{th}", "^\\circ",
    "^{\\circ}",  "\\;",        ",\\!",      "{,}",          "\"",
    "\\dots"};

// \name{x} -> x, up to the first closing brace.
std::string unwrap(const std::string& text, std::string_view opening) {
  std::string result;
  std::string_view rest = text;
  for (size_t at; (at = rest.find(opening)) != rest.npos;) {
    const size_t begin = at + opening.size(), close = rest.find('}', begin);
    if (close == rest.npos) break;
    result += rest.substr(0, at);
    result += rest.substr(begin, close - begin);
    rest.remove_prefix(close + 1);
  }
  return result += rest;
}

// \boxed{x} -> x, up to the last closing brace.
std::string unbox(const std::string& text) {
  constexpr std::string_view kOpening = "\\boxed{";
  const size_t at = text.find(kOpening), close = text.rfind('}');
  if (at == text.npos || close == text.npos || close < at + kOpening.size()) return text;
  const size_t begin = at + kOpening.size();
  return text.substr(0, at) + text.substr(begin, close - begin) + text.substr(close + 1);
}

// The formula between the first two dollar signs, if there are two, is the answer.
std::string first_formula(const std::string& text) {
  const size_t open = text.find('$');
  const size_t close = open == text.npos ? text.npos : text.find('$', open + 1);
  return close == text.npos ? text : text.substr(open + 1, close - open - 1);
}

// name followed by `count` characters, the first no brace: each gets braces of its own.
std::string brace_arguments(std::string_view text, std::string_view name, size_t count) {
  std::string result;
  for (size_t at; (at = text.find(name)) != text.npos;) {
    result += text.substr(0, at + name.size());
    text.remove_prefix(at + name.size());
    if (text.size() < count || text.front() == '{') continue;
    for (size_t i = 0; i < count; ++i) result.append("{").append(1, text[i]).append("}");
    text.remove_prefix(count);
  }
  return result += text;
}

bool starts_with_word(std::string_view text, std::string_view lower) {
  return text.size() >= lower.size() && std::equal(lower.begin(), lower.end(), text.begin(), [](char want, char have) {
           return want == (have >= 'A' && have <= 'Z' ? have - 'A' + 'a' : have);
         });
}

std::string_view without_leading_space(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(kWhiteSpace), text.size()));
  return text;
}

}  // namespace

std::optional<std::string> answer_line(std::string_view solution) {
  constexpr std::string_view kWord = "answer";
  std::optional<std::string> answer;
  while (!solution.empty()) {
    if (!starts_with_word(solution, kWord)) {
      solution.remove_prefix(1);
      continue;
    }
    solution.remove_prefix(kWord.size());
    std::string_view rest = without_leading_space(solution);
    if (!rest.starts_with(':')) continue;
    rest = without_leading_space(rest.substr(1));
    if (rest.empty()) continue;
    const size_t end = std::min(rest.find('\n'), rest.size());
    answer = std::string(rest.substr(0, end));
    solution = rest.substr(end);
  }
  return answer;
}

std::string normalize_minerva(std::string_view answer) {
  const size_t equals = answer.rfind('=');
  std::string text(equals == answer.npos ? answer : answer.substr(equals + 1));
  for (const auto& [from, to] : kSubstitutions) text = replace_all(text, from, to);
  for (const std::string_view expression : kRemoved) text = replace_all(text, expression, "");
  text = first_formula(text);
  for (const std::string_view macro : {"\\text{", "\\textbf{", "\\overline{"}) text = unwrap(text, macro);
  text = unbox(text);
  text = brace_arguments(brace_arguments(text, "frac", 2), "sqrt", 1);
  std::erase(text, '$');
  std::string digits = text;
  std::erase(digits, ',');
  if (!digits.empty() && std::all_of(digits.begin(), digits.end(), is_digit)) text = digits;
  return std::string(stripped(text));
}

}  // namespace tandem
