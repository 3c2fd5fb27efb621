#include "reward/math_answer.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "reward/math_units.h"

namespace tandem {
namespace {

using Form = MathAnswer::Form;
using Kind = MathToken::Kind;
using Tokens = std::span<const MathToken>;

constexpr int kMaxDepth = 12;
constexpr size_t kMaxParts = 64;

int depth_change(const MathToken& token) {
  if (token.is("(") || token.is("[") || token.is("{") || token.is("\\{") || token.kind == Kind::kBegin) return 1;
  if (token.is(")") || token.is("]") || token.is("}") || token.is("\\}") || token.kind == Kind::kEnd) return -1;
  return 0;
}

using Test = std::function<bool(const MathToken&)>;

// Cut at the tokens outside brackets that `cuts` says; those are not part of any piece.
std::vector<Tokens> split(Tokens tokens, const Test& cuts, std::vector<std::string>* cutters = nullptr) {
  std::vector<Tokens> pieces;
  int depth = 0;
  size_t begin = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (depth == 0 && cuts(tokens[i])) {
      pieces.push_back(tokens.subspan(begin, i - begin));
      if (cutters != nullptr) cutters->push_back(tokens[i].text);
      begin = i + 1;
    }
    depth += depth_change(tokens[i]);
  }
  pieces.push_back(tokens.subspan(begin));
  return pieces;
}

// Whether one pair of brackets holds everything.
bool is_enclosed(Tokens tokens) {
  if (tokens.size() < 2 || depth_change(tokens.front()) != 1) return false;
  int depth = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    depth += depth_change(tokens[i]);
    if (depth <= 0) return depth == 0 && i + 1 == tokens.size();
  }
  return false;
}

bool is_separator(const MathToken& token) { return token.is(",") || token.is(";"); }
bool is_conjunction(const MathToken& token) {
  return (token.kind == Kind::kWord && (token.text == "and" || token.text == "or" || token.text == ",and")) ||
         token.is_command("or");
}
bool is_relation(const MathToken& token) {
  return token.is("=") || token.is("<") || token.is(">") || token.is_command("le") || token.is_command("ge") ||
         token.is_command("ne");
}

class AnswerParser {
 public:
  std::optional<MathAnswer> run(Tokens tokens) {
    if (++depth_ > kMaxDepth) return std::nullopt;
    auto answer = parse(trimmed(tokens));
    --depth_;
    return answer;
  }

 private:
  // Without a final full stop and braces that only group.
  static Tokens trimmed(Tokens tokens) {
    for (;;) {
      if (!tokens.empty() && tokens.back().is(".")) {
        tokens = tokens.first(tokens.size() - 1);
      } else if (is_enclosed(tokens) && tokens.front().is("{")) {
        tokens = tokens.subspan(1, tokens.size() - 2);
      } else {
        return tokens;
      }
    }
  }

  std::optional<MathAnswer> parse(Tokens tokens) {
    if (tokens.empty()) return std::nullopt;
    if (tokens.size() == 1 && tokens[0].kind == Kind::kWord && tokens[0].text.size() == 1) {
      const MathToken letter{Kind::kLetter, tokens[0].text, false};
      return parse_formulas(Tokens(&letter, 1));
    }
    if (auto words = parse_words(tokens)) return words;
    const auto in = std::find_if(tokens.begin(), tokens.end(), [](const auto& t) { return t.is_command("in"); });
    if (in != tokens.end()) return run(Tokens(in + 1, tokens.end()));
    if (auto list = parse_list(tokens)) return *list;
    std::vector<std::string> relations;
    const auto sides = split(tokens, is_relation, &relations);
    if (!relations.empty()) return parse_relation(sides, std::move(relations));
    const auto united = split(tokens, [](const MathToken& token) { return token.is_command("cup"); });
    if (united.size() > 1) return parse_parts(Form::kUnordered, united);
    if (tokens.front().kind == Kind::kBegin) return parse_matrix(tokens);
    if (is_enclosed(tokens)) {
      const auto parts = split(tokens.subspan(1, tokens.size() - 2), is_separator);
      if (tokens.front().is("\\{")) return parse_parts(Form::kUnordered, parts);
      if (parts.size() > 1) return parse_ordered(tokens, parts);
    }
    return parse_formulas(tokens);
  }

  static std::optional<MathAnswer> parse_words(Tokens tokens) {
    std::string text;
    bool letters = true;
    for (const MathToken& token : tokens) {
      const bool single = token.kind == Kind::kLetter && token.text.size() == 1;
      if (token.kind != Kind::kWord && !single) return std::nullopt;
      letters &= single;
      for (const char c : token.text) text += c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
    }
    if (letters && text.size() < 3) return std::nullopt;  // "x", "ab"
    MathAnswer answer;
    answer.form = Form::kWords;
    answer.text = std::move(text);
    return answer;
  }

  // Outer nothing: no list. Inner nothing: a list with a part that has no form.
  std::optional<std::optional<MathAnswer>> parse_list(Tokens tokens) {
    auto pieces = split(tokens, [](const MathToken& token) { return is_separator(token) || is_conjunction(token); });
    if (pieces.size() == 1) return std::nullopt;
    for (size_t i = 1; i < pieces.size(); ++i)  // ", and"
      if (pieces[i].empty() && i + 1 < pieces.size()) pieces.erase(pieces.begin() + static_cast<std::ptrdiff_t>(i--));
    return parse_parts(Form::kUnordered, pieces);
  }

  std::optional<MathAnswer> parse_parts(Form form, const std::vector<Tokens>& pieces) {
    if (pieces.size() > kMaxParts) return std::nullopt;
    MathAnswer answer;
    answer.form = form;
    for (const Tokens& piece : pieces) {
      auto part = run(piece);
      if (!part) return std::nullopt;
      answer.parts.push_back(std::move(*part));
    }
    return answer;
  }

  std::optional<MathAnswer> parse_ordered(Tokens tokens, const std::vector<Tokens>& pieces) {
    auto answer = parse_parts(Form::kOrdered, pieces);
    if (!answer) return std::nullopt;
    answer->open = tokens.front().text;
    answer->close = tokens.back().text;
    return answer;
  }

  std::optional<MathAnswer> parse_relation(const std::vector<Tokens>& sides, std::vector<std::string> relations) {
    auto answer = parse_parts(Form::kRelation, sides);
    if (answer) answer->relations = std::move(relations);
    return answer;
  }

  std::optional<MathAnswer> parse_matrix(Tokens tokens) {
    if (!is_enclosed(tokens) || tokens.front().text != tokens.back().text) return std::nullopt;
    const std::string& name = tokens.front().text;
    if (name != "matrix" && name != "pmatrix" && name != "bmatrix" && name != "vmatrix") return std::nullopt;
    MathAnswer answer;
    answer.form = Form::kMatrix;
    answer.text = name == "vmatrix" ? name : "matrix";
    auto rows = split(tokens.subspan(1, tokens.size() - 2), [](const MathToken& token) { return token.is("\\\\"); });
    if (rows.size() > 1 && rows.back().empty()) rows.pop_back();
    for (const Tokens& row : rows) {
      auto cells = parse_parts(Form::kOrdered, split(row, [](const MathToken& token) { return token.is("&"); }));
      if (!cells || answer.parts.size() == kMaxParts) return std::nullopt;
      answer.parts.push_back(std::move(*cells));
    }
    return answer;
  }

  static std::optional<MathAnswer> parse_formulas(Tokens tokens) {
    MathAnswer answer;
    tokens = without_unit(tokens, &answer);
    const auto formula = parse_formula(tokens, PlusMinus::kPlus);
    if (!formula) return std::nullopt;
    answer.formulas.push_back(*formula);
    if (std::any_of(tokens.begin(), tokens.end(),
                    [](const auto& t) { return t.is_command("pm") || t.is_command("mp"); }))
      answer.formulas.push_back(*parse_formula(tokens, PlusMinus::kMinus));
    const auto is_letter_at = [&](size_t i) { return i < tokens.size() && tokens[i].kind == Kind::kLetter; };
    const bool subscript = tokens.size() >= 3 && tokens[1].is("_") &&
                           (tokens.size() == 3 || (tokens.size() == 5 && tokens[2].is("{") && tokens[4].is("}")));
    const bool call = tokens.size() == 4 && tokens[1].is("(") && is_letter_at(2);
    answer.is_name = is_letter_at(0) && (tokens.size() == 1 || subscript || call);
    return answer;
  }

  // Takes "%", "\text{ cm}", "cm", "\text{cm}^2" from the end.
  static Tokens without_unit(Tokens tokens, MathAnswer* answer) {
    if (tokens.size() < 2) return tokens;
    if (tokens.back().is("%")) {
      answer->percent = true;
      return tokens.first(tokens.size() - 1);
    }
    size_t end = tokens.size();
    std::string power;
    if (end >= 4 && tokens[end - 1].is("}") && tokens[end - 3].is("{") && tokens[end - 4].is("^")) {
      power = "^" + tokens[end - 2].text;
      end -= 4;
    } else if (end >= 2 && tokens[end - 2].is("^")) {
      power = "^" + tokens[end - 1].text;
      end -= 2;
    }
    if (end >= 2 && tokens[end - 1].kind == Kind::kWord) {
      const std::string_view name = unit_name(tokens[end - 1].text);
      if (!name.empty()) answer->unit = std::string(name) + power;
      return tokens.first(end - 1);
    }
    size_t begin = end;
    std::string word;
    while (begin > 0 && tokens[begin - 1].kind == Kind::kLetter && tokens[begin - 1].text.size() == 1)
      word.insert(0, 1, static_cast<char>(tokens[--begin].text[0] | 0x20));
    const bool after_value = begin > 0 && (tokens[begin - 1].kind == Kind::kNumber || tokens[begin - 1].is("}"));
    if (word.size() < 2 || !after_value) return tokens;
    const std::string_view name = unit_name(word);
    const bool some_word = word.size() >= 3 && tokens[begin].spaced && power.empty();  // "8 apples"
    if (name.empty() && !some_word) return tokens;
    if (!name.empty()) answer->unit = std::string(name) + power;
    return tokens.first(begin);
  }

  int depth_ = 0;
};

bool same_formulas(const std::vector<Formula>& a, const std::vector<Formula>& b,
                   const std::function<bool(const Formula&, const Formula&)>& same) {
  if (a.size() != b.size()) return false;
  if (a.size() == 1) return same(a[0], b[0]);
  return (same(a[0], b[0]) && same(a[1], b[1])) || (same(a[0], b[1]) && same(a[1], b[0]));
}

bool same_formula_answers(const MathAnswer& a, const MathAnswer& b) {
  if (!a.unit.empty() && !b.unit.empty() && a.unit != b.unit) return false;
  if (same_formulas(a.formulas, b.formulas, same_value)) return true;
  // 50 % is 1/2; it is also "50" where the question asks for per cent.
  if (a.percent == b.percent) return false;
  return a.percent ? same_formulas(a.formulas, b.formulas, is_hundredfold)
                   : same_formulas(b.formulas, a.formulas, is_hundredfold);
}

// Each of a's parts with another of b's.
bool same_unordered(const std::vector<MathAnswer>& a, const std::vector<MathAnswer>& b) {
  if (a.size() != b.size()) return false;
  std::vector<bool> used(b.size(), false);
  for (const MathAnswer& part : a) {
    size_t i = 0;
    while (i < b.size() && (used[i] || !same_answer(part, b[i]))) ++i;
    if (i == b.size()) return false;
    used[i] = true;
  }
  return true;
}

bool same_ordered(const std::vector<MathAnswer>& a, const std::vector<MathAnswer>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), same_answer);
}

std::string mirrored(const std::string& relation) {
  if (relation == "<") return ">";
  if (relation == ">") return "<";
  if (relation == "le") return "ge";
  return relation == "ge" ? "le" : relation;
}

bool is_equation(const MathAnswer& answer) {
  return answer.form == Form::kRelation && answer.relations == std::vector<std::string>{"="};
}

bool same_relation(const MathAnswer& a, const MathAnswer& b) {
  if (a.relations == b.relations && same_ordered(a.parts, b.parts)) return true;
  MathAnswer turned = b;
  std::reverse(turned.parts.begin(), turned.parts.end());
  std::reverse(turned.relations.begin(), turned.relations.end());
  for (std::string& relation : turned.relations) relation = mirrored(relation);
  if (a.relations == turned.relations && same_ordered(a.parts, turned.parts)) return true;
  const auto single = [](const MathAnswer& side) { return side.form == Form::kFormula && side.formulas.size() == 1; };
  const auto sides = [&](const MathAnswer& equation) {
    return std::all_of(equation.parts.begin(), equation.parts.end(), single);
  };
  if (!is_equation(a) || !is_equation(b) || !sides(a) || !sides(b)) return false;
  return proportional(difference(a.parts[0].formulas[0], a.parts[1].formulas[0]),
                      difference(b.parts[0].formulas[0], b.parts[1].formulas[0]));
}

// "x = 5" answers "5".
const MathAnswer* named_value(const MathAnswer& answer) {
  return is_equation(answer) && answer.parts[0].is_name ? &answer.parts[1] : nullptr;
}

// 1 \pm \sqrt{2} is a list of two.
bool same_as_list(const MathAnswer& formula, const MathAnswer& list) {
  if (formula.form != Form::kFormula || formula.formulas.size() != 2 || list.form != Form::kUnordered) return false;
  std::vector<MathAnswer> parts(2, formula);
  for (size_t i = 0; i < 2; ++i) parts[i].formulas = {formula.formulas[i]};
  return same_unordered(parts, list.parts);
}

}  // namespace

std::optional<MathAnswer> parse_answer(std::span<const MathToken> tokens) { return AnswerParser().run(tokens); }

bool same_answer(const MathAnswer& a, const MathAnswer& b) {
  if (a.form != b.form) {
    if (const MathAnswer* value = named_value(a)) return same_answer(*value, b);
    if (const MathAnswer* value = named_value(b)) return same_answer(a, *value);
    return same_as_list(a, b) || same_as_list(b, a);
  }
  switch (a.form) {
    case Form::kFormula:
      return same_formula_answers(a, b);
    case Form::kOrdered:
      return a.open == b.open && a.close == b.close && same_ordered(a.parts, b.parts);
    case Form::kUnordered:
      return same_unordered(a.parts, b.parts);
    case Form::kMatrix:
      return a.text == b.text && same_ordered(a.parts, b.parts);
    case Form::kRelation:
      return same_relation(a, b);
    case Form::kWords:
      return a.text == b.text;
  }
  return false;
}

}  // namespace tandem
