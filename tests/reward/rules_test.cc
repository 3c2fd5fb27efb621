#include "reward/rules.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "data/expect_error.h"
#include "reward/latex.h"

namespace tandem {
namespace {

double score(std::string_view rule, const std::string& solution, const std::string& truth, bool finished = true) {
  return score_by_rule(rule, {.solution_str = solution, .ground_truth = truth, .finished = finished}).score;
}

std::string prose(size_t length, const std::string& part = "and so the matter rests, ") {
  std::string text;
  while (text.size() < length) text += part;
  return text;
}

// REW-1 (a) to (c); (d) and (e) follow.
TEST(Gsm8k, TheTailCannotChangeTheScore) {
  const std::string solved = "2+40=42\n#### 42\n";
  EXPECT_EQ(score("gsm8k", solved + prose(480), "42"), 1);
  EXPECT_EQ(score("gsm8k", solved, "42"), 1);
  EXPECT_EQ(score("gsm8k", solved + prose(480, "checked in 3 ways, "), "42"), 1);
}

TEST(Gsm8k, TheLastMarkerWins) {
  EXPECT_EQ(score("gsm8k", "#### 41\nNo, I forgot one.\n#### 42", "42"), 1);
  EXPECT_EQ(score("gsm8k", "#### 42\nNo, one too many.\n#### 41", "42"), 0);
  EXPECT_EQ(score("gsm8k", "#### 42\n#### none", "42"), 1);  // a marker without a number is none
}

TEST(Gsm8k, StrictNeedsTheMarkerFlexibleDoesNot) {
  const std::string unmarked = "In all there are 42 of them.";
  EXPECT_EQ(score("gsm8k", unmarked, "42"), 0);
  EXPECT_EQ(score("gsm8k_flexible", unmarked, "42"), 1);
  EXPECT_EQ(score("gsm8k", "####42", "42"), 0);  // verl wants the space
}

TEST(Gsm8k, ReadsNumbersAsVerlDoes) {
  EXPECT_EQ(gsm8k_answer("#### 1,234"), "1234");
  EXPECT_EQ(gsm8k_answer("#### -5 apples"), "-5");
  EXPECT_EQ(gsm8k_answer("#### 18."), "18.");  // not "18": kept as verl has it
  EXPECT_EQ(gsm8k_answer("#### $18"), std::nullopt);
  EXPECT_EQ(gsm8k_answer("##### 9"), "9");
  EXPECT_EQ(gsm8k_answer(""), std::nullopt);
}

TEST(Gsm8k, FlexibleFindsTheLastNumber) {
  EXPECT_EQ(last_number("3 boxes, $1,042. Done..."), "1042");
  EXPECT_EQ(last_number("it falls to -7"), "-7");
  EXPECT_EQ(last_number("0.5."), "0.5");
  EXPECT_EQ(last_number("no number, at all."), std::nullopt);
  EXPECT_EQ(last_number(""), std::nullopt);
}

// REW-2 (a) to (h), and more.
struct BoxCase {
  const char* name;
  std::string solution;
  std::string truth;
  double expected;
};
class Boxed : public testing::TestWithParam<BoxCase> {};

TEST_P(Boxed, Scores) { EXPECT_EQ(score("math", GetParam().solution, GetParam().truth), GetParam().expected); }

INSTANTIATE_TEST_SUITE_P(FieldCases, Boxed,
                         testing::Values(BoxCase{"a", R"(so \boxed{\frac{1}{2}}.)", R"(\frac{1}{2})", 1},
                                         BoxCase{"b", R"(\boxed{\frac{1}{3}})", R"(\frac{1}{2})", 0},
                                         BoxCase{"c", R"(\boxed{x^{2}+\sqrt{3}})", R"(x^{2}+\sqrt{3})", 1},
                                         BoxCase{"d", R"(\boxed{\frac{1}{2})", R"(\frac{1}{2})", 0},
                                         BoxCase{"e", R"(\boxed{3} no: \boxed{4})", "4", 1},
                                         BoxCase{"f", R"(I put it in \boxed form. It is $\boxed{7}$.)", "7", 1},
                                         BoxCase{"g", R"(\boxed{\{1,2\}})", R"(\{1,2\})", 1},
                                         BoxCase{"h", R"(\fbox{42})", "42", 1},  // \fbox counts, as in verl
                                         BoxCase{"last_is_cut", R"(\boxed{4} hence \boxed{4)", "4", 0},
                                         BoxCase{"no_brace", R"($\boxed 7$ it is)", "7", 1},
                                         BoxCase{"word_after", R"(\boxed{7}, which is in \boxed form)", "7", 1},
                                         BoxCase{"nested", R"(\boxed{\fbox{9}})", "9", 1},
                                         BoxCase{"double_backslash", R"(\boxed{1\\} 2})", R"(1\)", 1},
                                         BoxCase{"prose_after", R"(\boxed{5})" + prose(2000), "5", 1},
                                         BoxCase{"no_box", "5", "5", 0}, BoxCase{"empty", R"(\boxed{})", "5", 0},
                                         BoxCase{"vanishing", R"(\boxed{})", R"(\%)", 0},
                                         BoxCase{"only_macro", R"(\boxed)", "5", 0},
                                         BoxCase{"fbox_later", R"(\boxed{1} \fbox{2})", "2", 1},
                                         BoxCase{"boxed_later", R"(\fbox{1} \boxed{2})", "2", 1}),
                         [](const auto& tested) { return std::string(tested.param.name); });

TEST(Boxed, SurvivesHugeInput) {
  EXPECT_EQ(score("math", "\\boxed" + std::string(1'000'000, '{'), "5"), 0);
  EXPECT_EQ(score("math", "\\boxed{" + std::string(100'000, '\\') + "}", "5"), 0);
}

TEST(Latex, NormalisesAsVerlDoes) {
  const std::pair<const char*, const char*> cases[] = {
      {R"(\dfrac{1}{2})", R"(\frac{1}{2})"},
      {R"(\tfrac12)", R"(\frac{1}{2})"},
      {R"(\frac1{72})", R"(\frac{1}{72})"},
      {R"(\frac{72}1)", R"(\frac{72}1)"},
      {R"(\frac)", R"(\frac)"},
      {"1/2", R"(\frac{1}{2})"},
      {"-3/4", R"(\frac{-3}{4})"},
      {"1/2/3", "1/2/3"},
      {"x/2", "x/2"},
      {"0.5", R"(\frac{1}{2})"},
      {".5", R"(\frac{1}{2})"},
      {".25", "0.25"},
      {"x=5", "5"},
      {"k = 5", "5"},
      {"abc=5", "abc=5"},
      {"a=b=5", "a=b=5"},
      {R"(\sqrt3+\sqrt{2})", R"(\sqrt{3}+\sqrt{2})"},
      {R"(\left( 3, \frac{\pi}{2} \right))", R"((3,\frac{\pi}{2}))"},
      {R"(90^\circ)", "90"},
      {R"(90^{\circ})", "90"},
      {R"(\$12)", "12"},
      {R"(50\%)", "50"},
      {R"(5\text{ cm})", "5"},
      {R"(1,\!000)", "1,000"},
      {R"(a\\b)", R"(a\b)"},
      {"1 +\n2", "1+2"},
      {"", ""},
  };
  for (const auto& [text, expected] : cases) EXPECT_EQ(normalize_latex(text), expected) << text;
}

TEST(Latex, EqualNumbersAreEqualAnswers) {
  const auto equal = [](const char* a, const char* b) { return math_equal(a, b) && math_equal(b, a); };
  EXPECT_TRUE(equal("0.50", R"(\frac{1}{2})"));
  EXPECT_TRUE(equal(R"(\frac{2}{4})", "1/2"));
  EXPECT_TRUE(equal(R"(-\frac{3}{4})", "-3/4"));
  EXPECT_TRUE(equal("-0.75", R"(\frac{-3}{4})"));
  EXPECT_TRUE(equal("1,234", "1234"));
  EXPECT_TRUE(equal(R"(12{,}345.0)", "12345"));
  EXPECT_TRUE(equal("+7", "7.0"));
  EXPECT_TRUE(equal("007", "7"));
}

TEST(Latex, UnequalOrUncertainNumbersAreNot) {
  const auto equal = [](const char* a, const char* b) { return math_equal(a, b) || math_equal(b, a); };
  EXPECT_FALSE(equal("0.333", R"(\frac{1}{3})"));
  EXPECT_FALSE(equal("12,34", "1234"));
  EXPECT_FALSE(equal("1,2", "12"));
  EXPECT_FALSE(equal(R"(\frac{1}{0})", R"(\frac{2}{0})"));
  EXPECT_FALSE(equal("5", "-5"));
  EXPECT_FALSE(equal("1e3", "1000"));
  EXPECT_FALSE(equal("10000000000000000001", "10000000000000000002"));
  EXPECT_FALSE(equal("(1,000)", "1000"));
  EXPECT_FALSE(equal(".", "0"));
}

TEST(MathDapo, TakesTheLastAnswerLine) {
  const auto result = score_by_rule(
      "math_dapo", {.solution_str = "Answer: 3\nNo.\nANSWER : $34$\n" + prose(600), .ground_truth = "34"});
  EXPECT_EQ(result.score, 1);
  ASSERT_EQ(result.extra.size(), 1u);
  EXPECT_EQ(result.extra[0], (std::pair<std::string, double>{"acc", 1}));
  EXPECT_EQ(score("math_dapo", "Answer: 3", "34"), -1);
  EXPECT_EQ(score("math_dapo", "34", "34"), -1);
  EXPECT_EQ(answer_line("Answer: 5\nAnswer:"), "5");
  EXPECT_EQ(answer_line("the answer\n:\n 6 \nend"), "6 ");
  EXPECT_EQ(answer_line("answers: 6"), std::nullopt);
}

TEST(MathDapo, NormalisesAsMinervaDoes) {
  const std::pair<const char*, const char*> cases[] = {
      {"x = 5", "5"},           {"The value is $\\frac12$.", "\\frac{1}{2}"},
      {"12,345", "12345"},      {"(1,2)", "(1,2)"},
      {"5 \\text{cm}", "5"},    {"\\textbf{B}", "B"},
      {"$\\boxed{7}$", "7"},    {"90^\\circ", "90"},
      {"\\sqrt2", "\\sqrt{2}"}, {"10 dollars", "10"},
      {"\\$10", "10"},
  };
  for (const auto& [text, expected] : cases) EXPECT_EQ(normalize_minerva(text), expected) << text;
}

TEST(Exact, WantsTheWholeFinishedText) {
  EXPECT_EQ(score("exact", " 12\n", "12"), 1);
  EXPECT_EQ(score("exact", "12.", "12"), 0);
  EXPECT_EQ(score("exact", "1", "12"), 0);
  EXPECT_EQ(score("exact", "12", "12", /*finished=*/false), 0);
}

TEST(Countdown, ChecksNumbersAndValueExactly) {
  const std::string truth = R"({"target": 6, "numbers": [55, 38, 87]})";
  EXPECT_EQ(score("countdown", "<answer>(55 - 87) + 38</answer>", truth), 1);
  EXPECT_EQ(score("countdown", "<answer>1</answer> no <answer>55-87+38</answer>", truth), 1);
  EXPECT_EQ(score("countdown", "<answer>55-87</answer>", truth), 0.1);
  EXPECT_EQ(score("countdown", "<answer>6</answer>", truth), 0.1);
  EXPECT_EQ(score("countdown", "<answer>55-87+38+", truth), 0);
  EXPECT_EQ(score("countdown", "6", truth), 0);
  const std::string thirds = R"({"target": 8, "numbers": [3, 3, 8, 8]})";
  EXPECT_EQ(score("countdown", "<answer>8/(3-8/3)</answer>", R"({"target": 24, "numbers": [8, 3, 8, 3]})"), 1);
  EXPECT_EQ(score("countdown", "<answer>8/(3-3)*8</answer>", thirds), 0.1);
  EXPECT_EQ(score("countdown", "<answer>" + std::string(100'000, '(') + "</answer>", thirds), 0.1);
  EXPECT_EQ(score("countdown", "<answer>" + std::string(100'000, '-') + "3</answer>", thirds), 0.1);
  expect_error<DataError>([] { score("countdown", "6", "6"); }, {"prompt 0", "no countdown puzzle"});
}

TEST(Format, WantsThoughtThenAnswerAndNothingElse) {
  const auto format = [](const std::string& text) { return score("format", text, ""); };
  EXPECT_EQ(format("<think>2+2</think>\n<answer>4</answer>\n"), 1);
  EXPECT_EQ(format("<think></think><answer>4</answer>"), 1);
  EXPECT_EQ(format("<think>2+2</think><answer> </answer>"), 0);
  EXPECT_EQ(format("<think>2+2</think> so <answer>4</answer>"), 0);
  EXPECT_EQ(format("Well: <think>2+2</think><answer>4</answer>"), 0);
  EXPECT_EQ(format("<think>2+2</think><answer>4</answer> Done."), 0);
  EXPECT_EQ(format("<answer>4</answer><think>2+2</think>"), 0);
  EXPECT_EQ(format("<think>a</think><think>b</think><answer>4</answer>"), 0);
  EXPECT_EQ(format("<think>2+2<answer>4</answer></think>"), 0);
  EXPECT_EQ(format("4"), 0);
  EXPECT_EQ(format(""), 0);
}

TEST(Rules, RefuseAnEmptyTruth) {
  for (const std::string_view rule : rule_names())
    if (rule != "format") expect_error<DataError>([&] { score(rule, "x", " "); }, {"ground truth is empty"});
  expect_error<ConfigError>([] { score("gsm9k", "x", "1"); }, {"gsm9k", "gsm8k_flexible"});
}

}  // namespace
}  // namespace tandem
