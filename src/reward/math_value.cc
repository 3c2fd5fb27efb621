// same_value and its kin: a formula's values, exact and in floating point.
#include <array>
#include <cmath>
#include <complex>
#include <functional>

#include "base/fnv.h"
#include "base/rng.h"
#include "reward/math_formula_node.h"
#include "reward/rational.h"

namespace tandem {
namespace {

using Node = Formula::Node;
using Kind = Node::Kind;
using Real = long double;
using Complex = std::complex<Real>;

constexpr std::array<uint64_t, 2> kPrimes = {(uint64_t{1} << 61) - 1, (uint64_t{1} << 61) - 31};
constexpr size_t kNumPoints = 5;
constexpr int64_t kMostFactorial = 200;
constexpr Real kTolerance = 1e-10L, kNothing = 1e-14L;

uint64_t letter_seed(const std::string& name) { return fnv1a(kFnvStart, name); }

// Small exact values of constant parts: what exponents, factorials and degrees must be.
class Constants {
 public:
  explicit Constants(const Formula& formula) {
    for (const Node& node : formula.nodes()) values_.push_back(value(node));
  }
  std::optional<Rational> operator[](size_t node) const { return values_[node]; }
  std::optional<int64_t> whole(size_t node) const {
    const auto& value = values_[node];
    return value && value->denominator == 1 ? std::optional(value->numerator) : std::nullopt;
  }

 private:
  std::optional<Rational> value(const Node& node) const {
    const auto fold = [&](Rational start, auto operation) {
      std::optional<Rational> result = start;
      for (const size_t child : node.children)
        result = result && values_[child] ? operation(*result, *values_[child]) : std::nullopt;
      return result;
    };
    switch (node.kind) {
      case Kind::kNumber:
        return parse_decimal(node.text);
      case Kind::kSum:
        return fold({0, 1}, add);
      case Kind::kProduct:
        return fold({1, 1}, multiply);
      case Kind::kNegative:
        return fold({0, 1}, subtract);
      case Kind::kInverse:
        return fold({1, 1}, divide);
      default:
        return std::nullopt;
    }
  }

  std::vector<std::optional<Rational>> values_;
};

// Values modulo a prime.
class Residues {
 public:
  using Value = std::optional<uint64_t>;

  Residues(const Formula& formula, const Constants& constants, uint64_t prime, uint64_t point)
      : constants_(constants), prime_(prime), point_(point) {
    for (const Node& node : formula.nodes()) values_.push_back(value(node));
    root_ = values_[formula.root()];
  }
  Value root() const { return root_; }

 private:
  uint64_t times(uint64_t a, uint64_t b) const {
    return static_cast<uint64_t>(static_cast<unsigned __int128>(a) * b % prime_);
  }
  uint64_t power(uint64_t base, uint64_t exponent) const {
    uint64_t result = 1;
    for (; exponent > 0; exponent >>= 1, base = times(base, base))
      if (exponent & 1) result = times(result, base);
    return result;
  }
  Value inverse(Value a) const { return a && *a != 0 ? Value(power(*a, prime_ - 2)) : std::nullopt; }
  uint64_t digits(const std::string& text, uint64_t base) const {
    uint64_t result = 0;
    for (const char c : text)
      if (c != '.') result = (times(result, base) + static_cast<uint64_t>(c - '0')) % prime_;
    return result;
  }

  Value value(const Node& node) const {
    const auto child = [&](size_t i) { return values_[node.children[i]]; };
    switch (node.kind) {
      case Kind::kNumber: {
        const size_t point = node.text.find('.');
        const uint64_t scale = point == std::string::npos ? 1 : power(10, node.text.size() - point - 1);
        return times(digits(node.text, 10), *inverse(scale));
      }
      case Kind::kInBase:
        return digits(node.text, static_cast<uint64_t>(node.base));
      case Kind::kLetter:
        if (node.text == "i") return std::nullopt;
        return Philox(letter_seed(node.text), point_).next() % prime_;
      case Kind::kSum: {
        uint64_t sum = 0;
        for (size_t i = 0; i < node.children.size(); ++i) {
          if (!child(i)) return std::nullopt;
          sum = (sum + *child(i)) % prime_;
        }
        return sum;
      }
      case Kind::kProduct: {
        uint64_t product = 1;
        for (size_t i = 0; i < node.children.size(); ++i) {
          if (!child(i)) return std::nullopt;
          product = times(product, *child(i));
        }
        return product;
      }
      case Kind::kNegative:
        return child(0) ? Value((prime_ - *child(0)) % prime_) : std::nullopt;
      case Kind::kInverse:
        return inverse(child(0));
      case Kind::kPower: {
        const auto exponent = constants_.whole(node.children[1]);
        if (!exponent || !child(0)) return std::nullopt;
        if (*child(0) == 0 && *exponent <= 0) return std::nullopt;
        const uint64_t result = power(*child(0), static_cast<uint64_t>(*exponent < 0 ? -*exponent : *exponent));
        return *exponent < 0 ? inverse(result) : Value(result);
      }
      case Kind::kFactorial: {
        const auto n = constants_.whole(node.children[0]);
        return n && *n >= 0 && *n <= kMostFactorial ? Value(factorial(*n)) : std::nullopt;
      }
      case Kind::kBinomial: {
        const auto n = constants_.whole(node.children[0]), k = constants_.whole(node.children[1]);
        if (!n || !k || *n < 0 || *k < 0 || *n > kMostFactorial || *k > *n) return std::nullopt;
        const auto below = inverse(times(factorial(*k), factorial(*n - *k)));
        return times(factorial(*n), *below);
      }
      default:
        return std::nullopt;
    }
  }

  uint64_t factorial(int64_t n) const {
    uint64_t result = 1;
    for (int64_t i = 2; i <= n; ++i) result = times(result, static_cast<uint64_t>(i));
    return result;
  }

  const Constants& constants_;
  const uint64_t prime_, point_;
  std::vector<Value> values_;
  Value root_;
};

Real factorial(Real n) { return n >= 0 && n <= kMostFactorial && n == std::floor(n) ? std::tgamma(n + 1) : NAN; }

Complex whole_power(Complex base, int64_t exponent) {
  Complex result = 1;
  for (int64_t left = exponent < 0 ? -exponent : exponent; left > 0; left >>= 1, base *= base)
    if (left & 1) result *= base;
  return exponent < 0 ? Real(1) / result : result;
}

Complex real_root(Complex value, std::optional<int64_t> degree) {
  if (degree && *degree % 2 != 0 && value.imag() == 0 && value.real() < 0)
    return -std::pow(-value.real(), Real(1) / static_cast<Real>(*degree));
  return {NAN, 0};
}

Complex apply(const std::string& name, Complex x) {
  if (name == "sin") return std::sin(x);
  if (name == "cos") return std::cos(x);
  if (name == "tan") return std::tan(x);
  if (name == "cot") return std::cos(x) / std::sin(x);
  if (name == "sec") return Real(1) / std::cos(x);
  if (name == "csc") return Real(1) / std::sin(x);
  if (name == "arcsin") return std::asin(x);
  if (name == "arccos") return std::acos(x);
  if (name == "arctan") return std::atan(x);
  if (name == "arccot") return std::atan(Real(1) / x);
  if (name == "sinh") return std::sinh(x);
  if (name == "cosh") return std::cosh(x);
  if (name == "tanh") return std::tanh(x);
  if (name == "asinh") return std::asinh(x);
  if (name == "acosh") return std::acosh(x);
  if (name == "atanh") return std::atanh(x);
  if (name == "ln") return std::log(x);
  if (name == "log" || name == "lg") return std::log10(x);
  if (name == "exp") return std::exp(x);
  return {NAN, 0};
}

// Values in complex arithmetic; NaN or infinite where there is none.
class Values {
 public:
  Values(const Formula& formula, const Constants& constants, uint64_t point) : constants_(constants), point_(point) {
    for (const Node& node : formula.nodes()) {
      const Complex z = value(node);
      values_.push_back(z.imag() == 0 ? Complex(z.real(), 0) : z);  // -0 would choose the other side of a branch cut
    }
    root_ = values_[formula.root()];
  }
  Complex root() const { return root_; }

 private:
  Complex letter(const std::string& name) const {
    if (name == "pi") return std::acos(Real(-1));
    if (name == "e") return std::exp(Real(1));
    if (name == "i") return {0, 1};
    Philox random(letter_seed(name), point_);
    const Real size = 0.3L + 2.2L * static_cast<Real>(random.uniform());
    return point_ >= 2 && random.uniform() < 0.6 ? -size : size;
  }

  Complex value(const Node& node) const {
    const auto child = [&](size_t i) { return values_[node.children[i]]; };
    switch (node.kind) {
      case Kind::kNumber:
        return std::strtold(node.text.c_str(), nullptr);
      case Kind::kInBase: {
        Real result = 0;
        for (const char c : node.text) result = result * node.base + (c - '0');
        return result;
      }
      case Kind::kLetter:
        return letter(node.text);
      case Kind::kSum: {
        Complex sum = 0;
        for (size_t i = 0; i < node.children.size(); ++i) sum += child(i);
        return sum;
      }
      case Kind::kProduct: {
        Complex product = 1;
        for (size_t i = 0; i < node.children.size(); ++i) product *= child(i);
        return product;
      }
      case Kind::kNegative:
        return -child(0);
      case Kind::kInverse:
        return Real(1) / child(0);
      case Kind::kPower: {
        const auto exponent = constants_.whole(node.children[1]);
        return exponent ? whole_power(child(0), *exponent) : std::pow(child(0), child(1));
      }
      case Kind::kRoot: {
        if (node.children.size() == 1) return std::sqrt(child(0));
        const Complex root = real_root(child(0), constants_.whole(node.children[1]));
        return std::isnan(root.real()) ? std::pow(child(0), Real(1) / child(1)) : root;
      }
      case Kind::kFunction:
        return node.children.size() == 1 ? apply(node.text, child(0)) : std::log(child(0)) / std::log(child(1));
      case Kind::kFactorial:
        return child(0).imag() == 0 ? factorial(child(0).real()) : Real(NAN);
      case Kind::kBinomial:
        return factorial(child(0).real()) / (factorial(child(1).real()) * factorial(child(0).real() - child(1).real()));
      case Kind::kAbsolute:
        return std::abs(child(0));
    }
    return {NAN, 0};
  }

  const Constants& constants_;
  const uint64_t point_;
  std::vector<Complex> values_;
  Complex root_;
};

bool is_finite(Complex z) { return std::isfinite(z.real()) && std::isfinite(z.imag()); }

// An exact zero has no size that rounding could be measured by: what is left of a sum that vanishes is near it.
bool close(Complex a, Complex b) {
  const Real size = std::max(std::abs(a), std::abs(b));
  if (a == Complex(0) || b == Complex(0)) return size < kNothing;
  return std::abs(a - b) <= kTolerance * size;
}

// Both formulas at every point; `agree` sees the values of one point. False as soon as it is, or when too few points
// can be used.
struct Comparison {
  // the primes' values of a and b at all points, by prime
  std::function<bool(uint64_t prime, const std::vector<uint64_t>& a, const std::vector<uint64_t>& b)> exact;
  std::function<bool(const std::vector<Complex>& a, const std::vector<Complex>& b)> rounded;
};

bool compare(const Formula& a, const Formula& b, const Comparison& comparison) {
  const Constants constants_a(a), constants_b(b);
  bool exact = true;
  for (const uint64_t prime : kPrimes) {
    std::vector<uint64_t> values_a, values_b;
    for (uint64_t point = 0; exact && point < kNumPoints; ++point) {
      const auto x = Residues(a, constants_a, prime, point).root(), y = Residues(b, constants_b, prime, point).root();
      exact = x && y;
      if (!exact) break;
      values_a.push_back(*x);
      values_b.push_back(*y);
    }
    if (!exact) break;
    if (!comparison.exact(prime, values_a, values_b)) return false;
  }
  if (exact) return true;
  std::vector<Complex> values_a, values_b;
  for (uint64_t point = 0; point < kNumPoints; ++point) {
    const Complex x = Values(a, constants_a, point).root(), y = Values(b, constants_b, point).root();
    if (is_finite(x) != is_finite(y)) return false;
    if (!is_finite(x)) continue;
    values_a.push_back(x);
    values_b.push_back(y);
  }
  return values_a.size() >= 2 && comparison.rounded(values_a, values_b);
}

uint64_t times(uint64_t a, uint64_t b, uint64_t prime) {
  return static_cast<uint64_t>(static_cast<unsigned __int128>(a) * b % prime);
}

bool is_multiple(const Formula& a, const Formula& b, uint64_t factor) {
  const auto exact = [factor](uint64_t prime, const auto& x, const auto& y) {
    for (size_t i = 0; i < x.size(); ++i)
      if (x[i] != times(factor, y[i], prime)) return false;
    return true;
  };
  const auto rounded = [factor](const auto& x, const auto& y) {
    for (size_t i = 0; i < x.size(); ++i)
      if (!close(x[i], static_cast<Real>(factor) * y[i])) return false;
    return true;
  };
  return compare(a, b, {exact, rounded});
}

}  // namespace

bool same_value(const Formula& a, const Formula& b) { return is_multiple(a, b, 1); }
bool is_hundredfold(const Formula& a, const Formula& b) { return is_multiple(a, b, 100); }

// By cross products with the first point's values.
bool proportional(const Formula& a, const Formula& b) {
  const auto exact = [](uint64_t prime, const auto& x, const auto& y) {
    if (x[0] == 0 || y[0] == 0) return false;
    for (size_t i = 1; i < x.size(); ++i)
      if (times(x[i], y[0], prime) != times(x[0], y[i], prime)) return false;
    return true;
  };
  const auto rounded = [](const auto& x, const auto& y) {
    if (std::abs(x[0]) < kNothing || std::abs(y[0]) < kNothing) return false;
    for (size_t i = 1; i < x.size(); ++i)
      if (!close(x[i] * y[0], x[0] * y[i])) return false;
    return true;
  };
  return compare(a, b, {exact, rounded});
}

}  // namespace tandem
