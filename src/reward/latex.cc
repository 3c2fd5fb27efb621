#include "reward/latex.h"

#include <algorithm>
#include <array>
#include <utility>

#include "reward/text.h"

namespace tandem {
namespace {

constexpr std::string_view kFrac = "\\frac";
constexpr std::string_view kSqrt = "\\sqrt";

constexpr std::array<std::pair<std::string_view, std::string_view>, 10> kReplacements = {{
    {"\n", ""},
    {"\\!", ""},
    {"\\\\", "\\"},
    {"tfrac", "frac"},
    {"dfrac", "frac"},
    {"\\left", ""},
    {"\\right", ""},
    {"^{\\circ}", ""},
    {"^\\circ", ""},
    {"\\$", ""},
}};

std::string without_unit(std::string text) {
  constexpr std::string_view kUnit = "\\text{ ";
  if (count_of(text, kUnit) == 1) text.resize(text.find(kUnit));
  return text;
}

std::string without_name(const std::string& text) {
  const size_t equals = text.find('=');
  return equals <= 2 && count_of(text, "=") == 1 ? text.substr(equals + 1) : text;
}

// \sqrt3 -> \sqrt{3}
std::string brace_roots(std::string_view text) {
  std::string result;
  for (size_t at; (at = text.find(kSqrt)) != text.npos;) {
    result += text.substr(0, at + kSqrt.size());
    text.remove_prefix(at + kSqrt.size());
    if (text.empty() || text.front() == '{') continue;
    result.append("{").append(1, text.front()).append("}");
    text.remove_prefix(1);
  }
  return result += text;
}

// \frac12 -> \frac{1}{2}, \frac1{72} -> \frac{1}{72}; a text where that cannot be done stays as it is.
std::string brace_fractions(const std::string& whole) {
  std::string_view text = whole;
  std::string result;
  for (size_t at; (at = text.find(kFrac)) != text.npos;) {
    result += text.substr(0, at + kFrac.size());
    text.remove_prefix(at + kFrac.size());
    if (text.starts_with('{')) continue;
    if (text.size() < 2 || text.substr(0, std::min(text.find(kFrac), text.size())).size() < 2) return whole;
    result.append("{").append(1, text[0]).append("}");
    if (text[1] == '{') {
      text.remove_prefix(1);
      continue;
    }
    result.append("{").append(1, text[1]).append("}");
    text.remove_prefix(2);
  }
  return result += text;
}

// As Python prints it: no "+", no leading zeros.
bool is_plain_integer(std::string_view text) {
  if (text.starts_with('-')) text.remove_prefix(1);
  return !text.empty() && std::all_of(text.begin(), text.end(), is_digit) && (text.size() == 1 || text[0] != '0');
}

std::string slash_to_fraction(const std::string& text) {
  const size_t slash = text.find('/');
  if (slash == text.npos) return text;
  const std::string numerator = text.substr(0, slash), denominator = text.substr(slash + 1);
  const auto fits = [](const std::string& part) {
    return part.find("sqrt") != part.npos ? part.find('/') == part.npos : is_plain_integer(part);
  };
  return fits(numerator) && fits(denominator) ? "\\frac{" + numerator + "}{" + denominator + "}" : text;
}

}  // namespace

std::string normalize_latex(std::string_view text) {
  std::string result(text);
  for (const auto& [from, to] : kReplacements) result = replace_all(result, from, to);
  result = without_unit(std::move(result));
  result = replace_all(result, "\\%", "");
  result = replace_all(result, "%", "");
  result = replace_all(result, " .", " 0.");
  result = replace_all(result, "{.", "{0.");
  if (result.starts_with('.')) result.insert(result.begin(), '0');
  result = without_name(result);
  std::erase(result, ' ');
  result = brace_fractions(brace_roots(result));
  if (result == "0.5") return "\\frac{1}{2}";
  return slash_to_fraction(result);
}

}  // namespace tandem
