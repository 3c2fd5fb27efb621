// The rules that score a response by its text. Pure functions, thread-safe; none looks at only the tail of a response,
// so text after the answer cannot change a score.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "data/boxed.h"
#include "reward/reward.h"

namespace tandem {

// gsm8k: the number after the last "#### " (verl: `#### (\-?[0-9\.\,]+)`), without commas and "$", must equal the
// truth as text: 1 or 0. As in verl a final full stop belongs to the number: "#### 18." is not "18".
std::optional<std::string> gsm8k_answer(std::string_view solution);
// gsm8k_flexible: the last number of the text, wherever it stands; commas and a final full stop are dropped.
std::optional<std::string> last_number(std::string_view solution);

// math: the content of the last \boxed{...} or \fbox{...} with balanced braces (\{ and \} do not count) must be equal
// to the truth; 1 or 0. A last box that never closes is no answer. Only a text without any braced box may answer by
// "\boxed 7", up to "$" or the end of the line.
// Equal means the same mathematics (math_answer.h): 1/2 = 0.5 = \frac12 = 50\%; 0.333 is not 1/3. Lists and sets in any
// order, tuples and intervals in theirs; a unit or a name ("x = 5") may be missing on one side, but not differ. Answers
// that are not understood are equal when normalize_latex makes them the same text, as in verl.
bool math_equal(std::string_view answer, std::string_view truth);

// math_dapo: the rest of the line after the last "Answer:" (any case) against the truth, both normalised as in the
// Minerva paper (Lewkowycz et al. 2022, appendix D.1); score 1 or -1, with "acc" 1 or 0.
std::optional<std::string> answer_line(std::string_view solution);
std::string normalize_minerva(std::string_view answer);

// countdown: the last <answer>...</answer> must be an arithmetic expression (+ - * / and parentheses) that uses each of
// the truth's "numbers" exactly once and equals its "target", computed exactly: 1; an answer that does not: 0.1 (as in
// TinyZero); no answer: 0. The truth is a JSON object.
double countdown_score(std::string_view solution, const std::string& truth);

// exact: the response, stripped of surrounding white space, equals the stripped truth and the sample is finished.
double exact_score(const RewardRequest& request);

// format: the response, stripped, is <think>...</think> and then <answer>...</answer>, each tag once, with nothing but
// white space between and text in the answer: 1 or 0. The truth is not looked at.
double format_score(std::string_view solution);

// Scores by rule name. ConfigError for an unknown name; DataError for a truth that the rule cannot use.
RewardResult score_by_rule(std::string_view rule, const RewardRequest& request);
std::span<const std::string_view> rule_names();

}  // namespace tandem
