// Exact fractions of numbers with at most 18 digits; whatever would not fit is "no number" rather than a rounded one.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace tandem {

struct Rational {
  int64_t numerator = 0;
  int64_t denominator = 1;  // > 0; the fraction is in lowest terms
  bool operator==(const Rational&) const = default;
};

std::optional<Rational> make_rational(__int128 numerator, __int128 denominator);
std::optional<Rational> add(const Rational& a, const Rational& b);
std::optional<Rational> subtract(const Rational& a, const Rational& b);
std::optional<Rational> multiply(const Rational& a, const Rational& b);
std::optional<Rational> divide(const Rational& a, const Rational& b);

// "12", "-3.50", "1,234.5", "+7": an optional sign, digits with or without thousands commas, an optional
// point with digits behind it.
std::optional<Rational> parse_decimal(std::string_view text);

}  // namespace tandem
