// LaTeX answers made comparable.
#pragma once

#include <string>
#include <string_view>

namespace tandem {

// verl's math_reward normalisation (after Hendrycks et al. 2021, the MATH data set): line breaks, \!, \left, \right,
// degrees, dollar and per cent signs and spaces go; \\ becomes \; tfrac and dfrac become frac; what follows one
// "\text{ " (a unit) goes; ".5" becomes "0.5"; a name of at most two characters before the only "=" goes; \sqrt3,
// \frac12 and 1/2 get their braces; 0.5 becomes \frac{1}{2}.
std::string normalize_latex(std::string_view text);

}  // namespace tandem
