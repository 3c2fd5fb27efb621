// A mathematical answer, in LaTeX or plain text, cut into tokens: spelling variants become one, layout goes.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tandem {

struct MathToken {
  enum class Kind {
    kNumber,   // digits, perhaps a point
    kLetter,   // one letter, or a Greek one by its name
    kWord,     // what \text{...} and the like hold, in lower case
    kCommand,  // another macro, without its backslash: "frac", "sqrt", "sin", "pm"
    kSymbol,   // one of + - * / ^ _ ( ) [ ] { } | , ; = < > ! % & : . or "\{", "\}", "\\"
    kBegin,    // \begin{text}
    kEnd,      // \end{text}
  };
  Kind kind = Kind::kSymbol;
  std::string text;
  bool spaced = false;  // white space stood before it

  bool is(std::string_view symbol) const { return kind == Kind::kSymbol && text == symbol; }
  bool is_command(std::string_view name) const { return kind == Kind::kCommand && text == name; }
};

// What a comma between digits is where it could be either.
enum class Commas {
  kThousands,  // "1,234" is one number (outside brackets)
  kSeparators,
};

// Nothing for bytes that no answer holds.
std::optional<std::vector<MathToken>> math_tokens(std::string_view text, Commas commas);

}  // namespace tandem
