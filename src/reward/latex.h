// LaTeX answers made comparable.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "reward/rational.h"

namespace tandem {

// verl's math_reward normalisation (after Hendrycks et al. 2021, the MATH data set): line breaks, \!, \left, \right,
// degrees, dollar and per cent signs and spaces go; \\ becomes \; tfrac and dfrac become frac; what follows one
// "\text{ " (a unit) goes; ".5" becomes "0.5"; a name of at most two characters before the only "=" goes; \sqrt3,
// \frac12 and 1/2 get their braces; 0.5 becomes \frac{1}{2}.
std::string normalize_latex(std::string_view text);

// The exact value of a normalised text that is a number: a decimal or \frac{decimal}{decimal}, with a sign.
std::optional<Rational> latex_number(std::string_view normalized);

// Where the brace opened at `open` closes; npos if it does not. \{ and \} do not count.
size_t closing_brace(std::string_view text, size_t open);

}  // namespace tandem
