#include "reward/rational.h"

#include <algorithm>

#include "reward/text.h"

namespace tandem {
namespace {

__int128 greatest_common_divisor(__int128 a, __int128 b) {
  while (b != 0) {
    const __int128 rest = a % b;
    a = b;
    b = rest;
  }
  return a < 0 ? -a : a;
}

// Either no comma at all, or groups of three digits behind each.
bool commas_are_thousands(std::string_view digits) {
  size_t comma = digits.find(',');
  if (comma == digits.npos) return true;
  if (comma == 0 || comma > 3) return false;
  for (; comma < digits.size(); comma += 4) {
    if (digits[comma] != ',' || comma + 4 > digits.size()) return false;
    if (!std::all_of(digits.begin() + comma + 1, digits.begin() + comma + 4, is_digit)) return false;
  }
  return comma == digits.size();
}

}  // namespace

std::optional<Rational> make_rational(__int128 numerator, __int128 denominator) {
  if (denominator == 0) return std::nullopt;
  const __int128 divisor = greatest_common_divisor(numerator, denominator) * (denominator < 0 ? -1 : 1);
  numerator /= divisor;
  denominator /= divisor;
  constexpr __int128 kMost = INT64_MAX;
  if (numerator > kMost || numerator < -kMost || denominator > kMost) return std::nullopt;
  return Rational{static_cast<int64_t>(numerator), static_cast<int64_t>(denominator)};
}

std::optional<Rational> add(const Rational& a, const Rational& b) {
  return make_rational(
      static_cast<__int128>(a.numerator) * b.denominator + static_cast<__int128>(b.numerator) * a.denominator,
      static_cast<__int128>(a.denominator) * b.denominator);
}

std::optional<Rational> subtract(const Rational& a, const Rational& b) { return add(a, {-b.numerator, b.denominator}); }

std::optional<Rational> multiply(const Rational& a, const Rational& b) {
  return make_rational(static_cast<__int128>(a.numerator) * b.numerator,
                       static_cast<__int128>(a.denominator) * b.denominator);
}

std::optional<Rational> divide(const Rational& a, const Rational& b) {
  return make_rational(static_cast<__int128>(a.numerator) * b.denominator,
                       static_cast<__int128>(a.denominator) * b.numerator);
}

std::optional<Rational> parse_decimal(std::string_view text) {
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  const size_t point = std::min(text.find('.'), text.size());
  const std::string_view whole = text.substr(0, point);
  const std::string_view fraction = point < text.size() ? text.substr(point + 1) : std::string_view();
  if (point + 1 == text.size() || !commas_are_thousands(whole)) return std::nullopt;
  int64_t value = 0, scale = 1;
  int digits = 0;
  const auto take = [&](char c) {
    if (!is_digit(c) || ++digits > 18) return false;
    value = value * 10 + (c - '0');
    return true;
  };
  for (const char c : whole)
    if (c != ',' && !take(c)) return std::nullopt;
  for (const char c : fraction) {
    if (!take(c)) return std::nullopt;
    scale *= 10;
  }
  if (digits == 0) return std::nullopt;
  return make_rational(negative ? -value : value, scale);
}

}  // namespace tandem
