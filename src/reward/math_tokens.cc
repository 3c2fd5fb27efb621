#include "reward/math_tokens.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/text.h"
#include "data/boxed.h"
#include "reward/text.h"

namespace tandem {
namespace {

using Kind = MathToken::Kind;
using Pair = std::pair<std::string_view, std::string_view>;

constexpr std::string_view kSymbols = "+-*/^_()[]{}|,;=<>!%&:.";

// Layout only.
constexpr std::array<std::string_view, 26> kIgnored = {
    "left",   "right", "big",   "Big",          "bigl",      "bigr",   "Bigl",     "Bigr",     "bigg",
    "Bigg",   "quad",  "qquad", "displaystyle", "textstyle", "limits", "nolimits", "hspace",   "circ",
    "degree", "dots",  "ldots", "hfill",        "phantom",   "middle", "medspace", "thinspace"};
constexpr std::array<Pair, 33> kAliases = {{
    {"dfrac", "frac"},
    {"tfrac", "frac"},
    {"cfrac", "frac"},
    {"dbinom", "binom"},
    {"tbinom", "binom"},
    {"leq", "le"},
    {"leqslant", "le"},
    {"geq", "ge"},
    {"geqslant", "ge"},
    {"neq", "ne"},
    {"lt", "<"},
    {"gt", ">"},
    {"cdot", "*"},
    {"times", "*"},
    {"ast", "*"},
    {"div", "/"},
    {"lvert", "|"},
    {"rvert", "|"},
    {"vert", "|"},
    {"lbrace", "\\{"},
    {"rbrace", "\\}"},
    {"lbrack", "["},
    {"rbrack", "]"},
    {"operatorname*", "operatorname"},
    {"langle", "("},
    {"rangle", ")"},
    {"cup", "cup"},
    {"lor", "or"},
    {"colon", ":"},
    {"arcsinh", "asinh"},
    {"varnothing", "emptyset"},
    {"backslash", "\\"},
    {"minus", "-"},
}};
constexpr std::array<std::string_view, 11> kTextMacros = {
    "text", "textbf", "textit", "textrm", "mbox", "mathrm", "mathbf", "mathit", "mathsf", "rm", "operatorname"};
constexpr std::array<std::string_view, 30> kGreek = {
    "alpha",  "beta", "gamma", "delta", "epsilon", "zeta",  "eta",   "theta", "iota",    "kappa",
    "lambda", "mu",   "nu",    "xi",    "pi",      "rho",   "sigma", "tau",   "upsilon", "phi",
    "chi",    "psi",  "omega", "Delta", "Gamma",   "Omega", "Phi",   "Psi",   "varphi",  "infty"};
constexpr std::array<Pair, 15> kUnicode = {{
    {"−", "-"},
    {"–", "-"},
    {"×", "*"},
    {"·", "*"},
    {"÷", "/"},
    {"≤", "\\le "},
    {"≥", "\\ge "},
    {"≠", "\\ne "},
    {"π", "\\pi "},
    {"∞", "\\infty "},
    {"√", "\\sqrt "},
    {"°", ""},
    {"²", "^2"},
    {"³", "^3"},
    {"½", "\\frac12 "},
}};

template <class Range>
bool contains(const Range& range, std::string_view text) {
  return std::find(range.begin(), range.end(), text) != range.end();
}

std::string lower(std::string_view text) {
  std::string result;
  for (const char c : text)
    if (kWhiteSpace.find(c) == kWhiteSpace.npos) result += c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  return result;
}

class Cutter {
 public:
  Cutter(std::string_view text, Commas commas) : text_(text), commas_(commas) {}

  bool run() {
    while (at_ < text_.size())
      if (!next()) return false;
    return true;
  }
  std::vector<MathToken> tokens;

 private:
  void add(Kind kind, std::string text) {
    tokens.push_back({kind, std::move(text), spaced_});
    spaced_ = false;
  }
  char peek(size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }

  bool next() {
    const char c = text_[at_];
    if (kWhiteSpace.find(c) != kWhiteSpace.npos || c == '~' || c == '$') {
      spaced_ = true;
      ++at_;
    } else if (c == '\\') {
      return macro();
    } else if (is_digit(c) || (c == '.' && is_digit(peek(1)))) {
      number();
    } else if (is_letter(c)) {
      letter();
    } else if (kSymbols.find(c) != kSymbols.npos) {
      if (c == '(' || c == '[' || c == '{') ++depth_;
      if (c == ')' || c == ']' || c == '}') --depth_;
      add(Kind::kSymbol, std::string(1, c));
      ++at_;
    } else {
      return false;
    }
    return true;
  }

  // "1 and 2" and "x = 1 or x = 2" are lists; all other letters stand for themselves.
  void letter() {
    size_t end = at_;
    while (end < text_.size() && is_letter(text_[end])) ++end;
    const std::string_view word = text_.substr(at_, end - at_);
    const bool joins = (word == "and" || word == "or") && (at_ == 0 || !is_letter(text_[at_ - 1]));
    add(joins ? Kind::kWord : Kind::kLetter, std::string(joins ? word : word.substr(0, 1)));
    at_ += joins ? word.size() : 1;
  }

  void number() {
    std::string digits;
    bool point = false;
    size_t first_group = 0;  // digits before the first comma
    for (;;) {
      if (is_digit(peek())) {
        digits += text_[at_++];
      } else if (peek() == '.' && !point && is_digit(peek(1))) {
        point = true;
        digits += text_[at_++];
      } else if (const size_t comma = point ? 0 : thousands_comma(digits.size(), first_group)) {
        if (first_group == 0) first_group = digits.size();
        at_ += comma;
      } else {
        break;
      }
    }
    add(Kind::kNumber, std::move(digits));
  }

  // The length of a comma that only groups digits: "{,}" and the like always do, "," where there is no bracket.
  size_t thousands_comma(size_t num_digits, size_t first_group) const {
    const std::string_view rest = text_.substr(at_);
    size_t length = 0;
    for (const std::string_view comma : {"{,}", ",\\!", "\\,", "\\!"})
      if (rest.starts_with(comma)) length = comma.size();
    if (length == 0 && rest.starts_with(",") && commas_ == Commas::kThousands && depth_ == 0) length = 1;
    if (length == 0 || is_digit(peek(length + 3))) return 0;
    for (size_t i = 0; i < 3; ++i)
      if (!is_digit(peek(length + i))) return 0;
    const bool groups = first_group == 0 ? num_digits <= 3 : (num_digits - first_group) % 3 == 0;
    return groups ? length : 0;
  }

  bool macro() {
    ++at_;
    if (at_ == text_.size()) return false;
    const char c = text_[at_];
    if (!is_letter(c)) {
      ++at_;
      if (c == '{' || c == '}' || c == '\\') add(Kind::kSymbol, std::string("\\") + c);
      if (c == '%') add(Kind::kSymbol, "%");
      if (c == '|') add(Kind::kSymbol, "|");
      if (c == ' ' || c == ',' || c == ';' || c == ':') spaced_ = true;
      return std::string_view("{}\\%| ,;:!$&").find(c) != std::string_view::npos;
    }
    size_t end = at_;
    while (end < text_.size() && is_letter(text_[end])) ++end;
    std::string_view name = text_.substr(at_, end - at_);
    at_ = end;
    if (name == "begin" || name == "end") return environment(name == "begin" ? Kind::kBegin : Kind::kEnd);
    if (contains(kTextMacros, name)) return words(name == "mathbf" || name == "textbf");
    if (contains(kIgnored, name)) return ignored(name);
    const auto* alias =
        std::find_if(kAliases.begin(), kAliases.end(), [&](const Pair& pair) { return pair.first == name; });
    if (alias != kAliases.end()) name = alias->second;
    if (contains(kGreek, name))
      add(Kind::kLetter, std::string(name));
    else
      add(is_letter(name.front()) ? Kind::kCommand : Kind::kSymbol, std::string(name));
    return true;
  }

  // A degree sign takes the caret before it along; \left. is no bracket.
  bool ignored(std::string_view name) {
    if (name == "circ" || name == "degree") {
      if (!tokens.empty() && tokens.back().is("^")) tokens.pop_back();
      if (tokens.size() >= 2 && tokens.back().is("{") && tokens[tokens.size() - 2].is("^") && peek() == '}') {
        tokens.resize(tokens.size() - 2);
        --depth_;
        ++at_;
      }
    }
    if ((name == "left" || name == "right") && peek() == '.') ++at_;
    return true;
  }

  std::optional<std::string_view> braced() {
    while (peek() == ' ') ++at_;
    if (peek() != '{') return std::nullopt;
    const size_t close = closing_brace(text_, at_);
    if (close == text_.npos) return std::nullopt;
    const std::string_view content = text_.substr(at_ + 1, close - at_ - 1);
    at_ = close + 1;
    return content;
  }

  bool environment(Kind kind) {
    const auto name = braced();
    if (name) add(kind, std::string(*name));
    return name.has_value();
  }

  bool words(bool bold) {
    const auto content = braced();
    if (!content) return true;  // "\rm" without braces
    std::string_view word = stripped(*content);
    while (word.ends_with('.')) word.remove_suffix(1);
    const bool in_brackets = word.size() == 3 && word.front() == '(' && word.back() == ')';
    const std::string_view choice = in_brackets ? word.substr(1, 1) : word;
    const bool is_unit = !in_brackets && !bold && !choice.empty() && choice[0] >= 'a';  // \text{ m}
    if (choice.size() == 1 && is_letter(choice[0]) && !is_unit)
      add(Kind::kLetter, std::string(choice));  // \text{(B)}, \mathbf{x}
    else if (!word.empty() && std::all_of(word.begin(), word.end(), is_digit))
      add(Kind::kNumber, std::string(word));
    else if (!word.empty())
      add(Kind::kWord, lower(word));
    return true;
  }

  const std::string_view text_;
  const Commas commas_;
  size_t at_ = 0;
  int depth_ = 0;
  bool spaced_ = false;
};

}  // namespace

std::optional<std::vector<MathToken>> math_tokens(std::string_view text, Commas commas) {
  std::string plain(text);
  for (const auto& [from, to] : kUnicode) plain = replace_all(plain, from, to);
  Cutter cutter(plain, commas);
  if (!cutter.run()) return std::nullopt;
  return std::move(cutter.tokens);
}

}  // namespace tandem
