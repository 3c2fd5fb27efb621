#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "reward/rational.h"
#include "reward/rules.h"
#include "reward/text.h"

namespace tandem {
namespace {

struct Puzzle {
  int64_t target = 0;
  std::vector<int64_t> numbers;
};

Puzzle parse_puzzle(const std::string& truth) {
  try {
    const auto json = nlohmann::json::parse(truth);
    return {json.at("target").get<int64_t>(), json.at("numbers").get<std::vector<int64_t>>()};
  } catch (const nlohmann::json::exception& error) {
    throw DataError(fmt::format(
        "the ground truth '{}' is no countdown puzzle; it must be {{\"target\": 6, \"numbers\": [1, 2, 3]}}", truth));
  }
}

std::optional<std::string_view> last_answer(std::string_view solution) {
  constexpr std::string_view kOpen = "<answer>", kClose = "</answer>";
  const size_t close = solution.rfind(kClose);
  if (close == solution.npos) return std::nullopt;
  const size_t open = solution.substr(0, close).rfind(kOpen);
  if (open == solution.npos) return std::nullopt;
  return solution.substr(open + kOpen.size(), close - open - kOpen.size());
}

// sum = product {("+"|"-") product}; product = factor {("*"|"/") factor}; factor = ["-"] (integer | "(" sum ")")
class Expression {
 public:
  explicit Expression(std::string_view text) {
    for (const char c : text)
      if (kWhiteSpace.find(c) == kWhiteSpace.npos) text_ += c;
  }

  // Nothing when it is no expression, divides by zero or leaves the exact range.
  std::optional<Rational> value() {
    const auto result = sum();
    return at_ == text_.size() ? result : std::nullopt;
  }
  const std::vector<int64_t>& numbers() const { return numbers_; }

 private:
  static constexpr int kMaxDepth = 100;
  using Operation = std::optional<Rational> (*)(const Rational&, const Rational&);

  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }

  template <class Operand>
  std::optional<Rational> chain(char first, Operation first_operation, char second, Operation second_operation,
                                const Operand& operand) {
    auto left = operand();
    while (left && (peek() == first || peek() == second)) {
      const Operation operation = text_[at_++] == first ? first_operation : second_operation;
      const auto right = operand();
      left = right ? operation(*left, *right) : std::nullopt;
    }
    return left;
  }

  std::optional<Rational> sum() {
    return chain('+', add, '-', subtract, [this] { return product(); });
  }
  std::optional<Rational> product() {
    return chain('*', multiply, '/', divide, [this] { return factor(); });
  }

  std::optional<Rational> factor() {
    if (depth_ >= kMaxDepth) return std::nullopt;
    ++depth_;
    const auto result = peek() == '-' ? negated() : peek() == '(' ? parenthesis() : integer();
    --depth_;
    return result;
  }

  std::optional<Rational> negated() {
    ++at_;
    const auto value = factor();
    return value ? subtract({0, 1}, *value) : std::nullopt;
  }

  std::optional<Rational> parenthesis() {
    ++at_;
    const auto value = sum();
    if (peek() != ')') return std::nullopt;
    ++at_;
    return value;
  }

  std::optional<Rational> integer() {
    const size_t begin = at_;
    while (is_digit(peek())) ++at_;
    const auto value = parse_decimal(std::string_view(text_).substr(begin, at_ - begin));
    if (value) numbers_.push_back(value->numerator);
    return value;
  }

  std::string text_;
  size_t at_ = 0;
  int depth_ = 0;
  std::vector<int64_t> numbers_;
};

}  // namespace

double countdown_score(std::string_view solution, const std::string& truth) {
  constexpr double kWrongAnswer = 0.1;
  Puzzle puzzle = parse_puzzle(truth);
  const auto answer = last_answer(solution);
  if (!answer) return 0;
  Expression expression(*answer);
  const auto value = expression.value();
  auto used = expression.numbers();
  std::sort(used.begin(), used.end());
  std::sort(puzzle.numbers.begin(), puzzle.numbers.end());
  return value == Rational{puzzle.target, 1} && used == puzzle.numbers ? 1 : kWrongAnswer;
}

}  // namespace tandem
