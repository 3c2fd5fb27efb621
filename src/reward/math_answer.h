// The form of an answer: one formula, or a list, tuple, interval, set, union, matrix, relation or words.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "reward/math_expression.h"

namespace tandem {

struct MathAnswer {
  enum class Form {
    kFormula,    // formulas: one, or two where it holds a \pm
    kOrdered,    // parts within brackets, e.g. "(" and "]": tuples, points, intervals
    kUnordered,  // parts of a list, a set, a union
    kMatrix,     // parts are its rows, each kOrdered
    kRelation,   // parts joined by `relations`
    kWords,      // text
  };
  Form form = Form::kFormula;
  std::vector<Formula> formulas;
  bool percent = false;
  std::string unit;  // its canonical name, where it is a known one
  std::string open, close, text;
  std::vector<MathAnswer> parts;
  std::vector<std::string> relations;  // "=", "<", ">", "le", "ge", "ne"
  bool is_name = false;                // a formula that is a letter or f(x): may stand before "="
};

// Nothing where it has no form that is known here.
std::optional<MathAnswer> parse_answer(std::span<const MathToken> tokens);

bool same_answer(const MathAnswer& a, const MathAnswer& b);

}  // namespace tandem
