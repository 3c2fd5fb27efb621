// Formulas and whether two of them are the same function of their letters.
//
// Formulas built from numbers, letters, + - * / and whole powers are compared exactly: modulo two primes near 2^61,
// with fixed values for the letters (Schwartz 1980, Zippel 1979). All others are evaluated in complex arithmetic at
// fixed points, some of them negative, and must agree to 10 digits wherever both are finite. "pi" and "e" are letters
// of the first kind, their values in the second; "i" is the imaginary unit in the second only.
//
// Work is bounded by the number of tokens: nothing is ever expanded.
#pragma once

#include <memory>
#include <optional>
#include <span>

#include "reward/math_tokens.h"

namespace tandem {

class Formula {
 public:
  struct Node;  // in the .cc

  Formula(std::shared_ptr<const std::vector<Node>> nodes, size_t root) : nodes_(std::move(nodes)), root_(root) {}

  const std::vector<Node>& nodes() const { return *nodes_; }
  size_t root() const { return root_; }

 private:
  std::shared_ptr<const std::vector<Node>> nodes_;
  size_t root_;
};

// \pm and \mp are read as this: + (and -), or - (and +).
enum class PlusMinus { kPlus, kMinus };

// Nothing where the tokens are no formula that is known here.
std::optional<Formula> parse_formula(std::span<const MathToken> tokens, PlusMinus sign = PlusMinus::kPlus);

bool same_value(const Formula& a, const Formula& b);
bool is_hundredfold(const Formula& a, const Formula& b);  // a = 100 b
// Whether a and b are each other's multiple by a number other than 0: so are the sides' differences of equal equations.
bool proportional(const Formula& a, const Formula& b);
Formula difference(const Formula& a, const Formula& b);

}  // namespace tandem
