#include <gtest/gtest.h>

#include <chrono>

#include "reward/rules.h"

namespace tandem {
namespace {

using Pairs = std::vector<std::pair<std::string, std::string>>;

void expect_equal(const Pairs& pairs) {
  for (const auto& [a, b] : pairs) {
    EXPECT_TRUE(math_equal(a, b)) << a << "   " << b;
    EXPECT_TRUE(math_equal(b, a)) << b << "   " << a;
  }
}

void expect_different(const Pairs& pairs) {
  for (const auto& [a, b] : pairs) {
    EXPECT_FALSE(math_equal(a, b)) << a << "   " << b;
    EXPECT_FALSE(math_equal(b, a)) << b << "   " << a;
  }
}

TEST(MathEqual, Numbers) {
  expect_equal({{"1/2", "0.5"},
                {R"(\frac12)", "0.5"},
                {R"(\dfrac{1}{2})", R"(\tfrac{2}{4})"},
                {R"(50\%)", R"(\frac{1}{2})"},
                {R"(50\%)", "50"},
                {"50%", "0.50"},
                {"-3/4", R"(-\frac{3}{4})"},
                {R"(\frac{-3}{4})", "-0.75"},
                {"1,234,567", "1234567"},
                {R"(10{,}000)", "10000.0"},
                {R"(10\,000)", "10000"},
                {R"(1,\!000)", "1000"},
                {R"(1\frac{4}{5})", "1.8"},
                {"1 4/5", "1.8"},
                {R"(2^{10})", "1024"},
                {"2^10", "1024"},
                {R"(1.5 \times 10^{3})", "1500"},
                {R"(10^{-2})", "0.01"},
                {R"(2516_8)", "1358"},
                {R"(1011_{2})", "11"},
                {R"(\$12.50)", "12.5"},
                {"5.", "5"},
                {"x=5", "5"},
                {"f(x) = 5", "5"},
                {"x_1 = 5", "5"},
                {"+7", "007"},
                {"3!", "6"},
                {R"(\binom{5}{2})", "10"},
                {R"(2^{100})", "1267650600228229401496703205376"},
                {R"(|-3|)", "3"},
                {R"(\text{5})", "5"},
                {"−3", "-3"}});
  expect_different({{"0.333", R"(\frac{1}{3})"},
                    {"0.3333333333333333", "1/3"},
                    {"12", "1.2"},
                    {"1,2", "12"},
                    {"12,34", "1234"},
                    {R"(50\%)", "0.05"},
                    {R"(50\%)", R"(0.5\%)"},
                    {R"(2^{100})", "1267650600228229401496703205377"},
                    {"2305843009213693952", "1"},  // one more than 2^61 - 1
                    {"1 2", "12"},
                    {"2 1/2", "21/2"},
                    {"-5", "5"},
                    {R"(2516_8)", R"(2516_9)"},
                    {R"(\frac{1}{0})", R"(\frac{2}{0})"},
                    {R"(\frac{1}{0})", "0"},
                    {"1e3", "1000"},
                    {"", "0"},
                    {".", "0"},
                    {R"(x=5)", "y=5"}});
}

TEST(MathEqual, Roots) {
  expect_equal({{R"(\sqrt{8})", R"(2\sqrt{2})"},
                {R"(\sqrt2)", R"(\sqrt{2})"},
                {R"(\frac{1}{\sqrt{2}})", R"(\frac{\sqrt{2}}{2})"},
                {R"(\sqrt[3]{-8})", "-2"},
                {R"(\sqrt{4}\times10^{-15})", R"(2\times10^{-15})"},
                {R"(\sin \pi)", "0"},  // zero but for rounding
                {R"(2^{1/2})", R"(\sqrt{2})"},
                {R"(\sqrt{3+2\sqrt{2}})", R"(1+\sqrt{2})"},
                {R"(\frac{3+\sqrt{5}}{2})", R"(\frac{1}{2}(3+\sqrt{5}))"},
                {"√2", R"(\sqrt{2})"},
                {R"(\cos \frac{\pi}{3})", "1/2"},
                {R"(\sin^2 1 + \cos^2 1)", "1"},
                {R"(\sin^{-1} \frac12)", R"(\frac{\pi}{6})"},
                {R"(\log_2 8)", "3"},
                {R"(e^{i\pi})", "-1"},
                {R"((1+i)^2)", "2i"},
                {R"(\frac{\pi}{2})", R"(0.5\pi)"},
                {R"(1 \pm \sqrt{2})", R"(1-\sqrt{2}, 1+\sqrt{2})"},
                {R"(\pm 3)", "3, -3"},
                {R"(90^\circ)", "90"},
                {R"(90^{\circ})", "90"}});
  expect_different({{R"(\sqrt{4}\times10^{-15})", R"(3\times10^{-15})"},
                    {R"(\sqrt{2})", "1.414"},
                    {R"(\sqrt{2})", R"(\sqrt{3})"},
                    {R"(\sqrt{2})", R"(-\sqrt{2})"},
                    {R"(\pi)", "3.14159265358979"},
                    {R"(\pi)", R"(\frac{22}{7})"},
                    {R"(\pm 3)", "3"},
                    {R"(\sqrt[3]{2})", R"(\sqrt{2})"}});
}

TEST(MathEqual, Algebra) {
  expect_equal({{"x+1", "1+x"},
                {"(x+1)^2", "x^2+2x+1"},
                {R"(x^{2}-1)", "(x-1)(x+1)"},
                {R"(\frac{x^2-1}{x-1})", "x+1"},
                {"2(x+y)", "2x+2y"},
                {"ab", "ba"},
                {R"(x \cdot y)", "xy"},
                {"x/2", R"(\frac{1}{2}x)"},
                {R"((x+1)^{100})", R"((1+x)^{99}(x+1))"},
                {R"(a_1+a_{2})", "a_2+a_1"},
                {R"(\sin 2x)", R"(2\sin x\cos x)"},
                {R"(\sqrt{x^2})", R"((x^2)^{1/2})"},
                {"y = 2x+1", "2x+1"},
                {"y=2x+1", "y = 1+2x"},
                {"2x+3y=6", "4x+6y=12"},
                {"x^2+y^2=1", "1=y^2+x^2"},
                {R"(x \le 3)", R"(3 \geq x)"},
                {R"(2 < x \leq 5)", R"(5\ge x>2)"}});
  expect_different({{"x+1", "x"},
                    {"x", "y"},
                    {"x^2", "2x"},
                    {"x^2", "x^3"},
                    {R"(\sqrt{x^2})", "x"},  // not where x is negative
                    {R"((x+1)^{100})", R"((x+1)^{101})"},
                    {"2x+3y=6", "2x+3y=7"},
                    {R"(x<3)", R"(x \le 3)"},
                    {R"(x<3)", "x>3"},
                    {"x=y", "x=z"},
                    {"x_1+x_2=5", "5"},
                    {"2x=10", "10"},
                    {R"(x_1)", "x_2"},
                    {R"(\sin 2x)", R"(2\sin x)"}});
}

TEST(MathEqual, Collections) {
  expect_equal(
      {{"1, 2", "2,1"},
       {"1 \\text{ and } 2", "2, 1"},
       {"x=1 \\text{ or } x=2", "1, 2"},
       {"1, 2, and 3", "3,2,1"},
       {"100,200", "200, 100"},
       {R"(\{1,2\})", R"(\left\{ 2, 1 \right\})"},
       {R"((1, \frac{1}{2}))", R"(\left( 1, 0.5 \right))"},
       {R"([0,1))", R"(\left[0, 1\right))"},
       {R"(x \in [0,1))", "[0,1)"},
       {R"((-\infty, 0) \cup (1, \infty))", R"((1,\infty)\cup(-\infty,0))"},
       {R"(\begin{pmatrix} 1 & \frac12 \\ 3 & 4 \end{pmatrix})", R"(\begin{bmatrix}1&0.5\\3&4\\\end{bmatrix})"},
       {R"(\langle 1,2\rangle)", "(1,2)"}});
  expect_different({{"(1,2)", "(2,1)"},
                    {"(1,2)", "[1,2]"},
                    {"(1,2]", "(1,2)"},
                    {R"(\{1,2\})", R"(\{1,3\})"},
                    {R"(\{1,1\})", R"(\{1,2\})"},
                    {"1,2", "1,2,3"},
                    {"(1,2)", R"(\{1,2\})"},
                    {"1,2", "1,2,2"},
                    {R"(\begin{pmatrix} 1 \\ 2 \end{pmatrix})", R"(\begin{pmatrix} 2 \\ 1 \end{pmatrix})"},
                    {R"(\begin{pmatrix} 1 & 2 \end{pmatrix})", R"(\begin{pmatrix} 1 \\ 2 \end{pmatrix})"}});
}

TEST(MathEqual, UnitsAndWords) {
  expect_equal({{R"(5\text{ cm})", "5"},
                {"5 cm", R"(5\text{ centimeters})"},
                {R"(5\text{ cm}^2)", R"(5 cm^{2})"},
                {R"(\frac{1}{2}\text{ hours})", "0.5"},
                {R"(12\mbox{ inches}^2)", "12"},
                {R"(\text{(B)})", "B"},
                {"(B)", R"(\textbf{B})"},
                {R"(\text{Evelyn})", "evelyn"},
                {R"(\text{not possible})", "not possible"},
                {"8 apples", R"(8\text{ apples})"}});
  expect_different({{R"(5\text{ m})", R"(5\text{ cm})"},
                    {R"(5\text{ cm}^2)", R"(5\text{ cm}^3)"},
                    {R"(5\text{ cm})", "6"},
                    {"5m", "5"},
                    {R"(\text{(B)})", "C"},
                    {R"(\text{even})", R"(\text{odd})"},
                    {"god", "dog"},
                    {"abc", "cab"}});
}

TEST(MathEqual, HostileInputEndsQuickly) {
  const auto begin = std::chrono::steady_clock::now();
  const auto repeat = [](const std::string& part, size_t times, std::string text = {}) {
    for (size_t i = 0; i < times; ++i) text += part;
    return text;
  };
  const std::vector<std::string> hostile = {
      R"(9^{9^{9^{9^{9^{9^{9}}}}}})",
      R"(2^{999999999999999999})",
      repeat("0", 2000, "1"),
      repeat("3", 2000, "0."),
      repeat("(", 2000),
      repeat("(", 1000) + repeat(")", 1000, "1"),
      repeat("{", 1000) + repeat("}", 1000, "1"),
      repeat("-", 2000) + "1",
      repeat("+1", 1000, "1"),
      repeat("^x", 1000, "x"),
      repeat("200!", 500),
      repeat(R"(\binom{200}{100})", 100),
      repeat(R"(\sqrt{)", 300) + repeat("}", 300, "2"),
      repeat(R"(\sin )", 400) + "x",
      repeat(",1", 60, "1"),
      repeat(",1", 1000, "1"),
      repeat("(1,", 600) + repeat(")", 600, "1"),
      repeat("|", 2000),
      repeat("=", 2000),
      repeat("1=", 1000) + "1",
      repeat(R"(\text{a})", 250),
      repeat(R"(\begin{pmatrix})", 100),
      repeat(R"(\pm)", 600) + "1",
      repeat("1000000000000000000/", 100) + "7",
      repeat("7", 1'000'000),
      repeat("{", 1'000'000),
      repeat(R"(\frac)", 200'000),
      repeat(R"(\boxed)", 170'000),
      repeat("(x+1)", 200'000),
      std::string(1'000'000, '\0'),
      repeat("\xff", 1'000'000),
  };
  for (const std::string& text : hostile) {
    EXPECT_TRUE(math_equal(text, text)) << text.substr(0, 50);
    EXPECT_FALSE(math_equal(text, "1234567/89")) << text.substr(0, 50);
    math_equal(text, text + " ");
    math_equal(std::string("1+").append(text), text + "+1");
    boxed_answer(text);
    boxed_answer(std::string("\\boxed{").append(text));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
}

}  // namespace
}  // namespace tandem
