// The answer that a solution in LaTeX puts into a box. Pure functions; time is linear in the text.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tandem {

// The content of the last \boxed{...} or \fbox{...} with balanced braces (\{ and \} do not count). A last box that
// never closes is no answer. Only a text without any braced box may answer by "\boxed 7", up to "$" or the end of the
// line.
std::optional<std::string> boxed_answer(std::string_view solution);

// Where the brace opened at `open` closes; npos if it does not. \{ and \} do not count.
size_t closing_brace(std::string_view text, size_t open);

}  // namespace tandem
