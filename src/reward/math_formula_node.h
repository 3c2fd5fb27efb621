// The tree of a Formula, for its parser and its evaluation.
#pragma once

#include <string>
#include <vector>

#include "reward/math_expression.h"

namespace tandem {

struct Formula::Node {
  enum class Kind {
    kNumber,     // text: digits, perhaps a point
    kInBase,     // text: digits in base `base`
    kLetter,     // text: its name, subscript included
    kSum,        // children
    kProduct,    // children
    kNegative,   // child
    kInverse,    // child
    kPower,      // children: base, exponent
    kRoot,       // children: radicand, and the degree where it is not 2
    kFunction,   // text: its name; children: argument, and the base of a logarithm
    kFactorial,  // child
    kBinomial,   // children: n, k
    kAbsolute,   // child
  };
  Kind kind = Kind::kNumber;
  std::string text;
  std::vector<size_t> children;  // indices that are smaller than the node's own
  int base = 10;
};

}  // namespace tandem
