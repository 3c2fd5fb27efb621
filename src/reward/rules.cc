#include "reward/rules.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>

#include "base/error.h"
#include "base/text.h"

namespace tandem {
namespace {

constexpr std::array<std::string_view, 7> kRuleNames = {"gsm8k", "gsm8k_flexible", "math",  "math_dapo",
                                                        "exact", "countdown",      "format"};

double equals(const std::optional<std::string>& answer, std::string_view truth) {
  return answer && *answer == truth ? 1 : 0;
}

RewardResult math_dapo(const RewardRequest& request) {
  const auto answer = answer_line(request.solution_str);
  const bool correct = answer && normalize_minerva(*answer) == normalize_minerva(request.ground_truth);
  return {correct ? 1.0 : -1.0, {{"acc", correct ? 1.0 : 0.0}}};
}

}  // namespace

std::span<const std::string_view> rule_names() { return kRuleNames; }

double exact_score(const RewardRequest& request) {
  return request.finished && stripped(request.solution_str) == stripped(request.ground_truth) ? 1 : 0;
}

double format_score(std::string_view solution) {
  const std::array<std::string_view, 4> tags = {"<think>", "</think>", "<answer>", "</answer>"};
  solution = stripped(solution);
  std::array<size_t, 4> places{};
  for (size_t i = 0; i < tags.size(); ++i) {
    places[i] = solution.find(tags[i]);
    if (places[i] == solution.npos || solution.find(tags[i], places[i] + 1) != solution.npos) return 0;
  }
  const auto between = [&](size_t from, size_t to) {  // stripped; nothing where the tags are out of order
    const size_t begin = places[from] + tags[from].size();
    return begin <= places[to] ? std::optional(stripped(solution.substr(begin, places[to] - begin))) : std::nullopt;
  };
  const auto thought = between(0, 1), gap = between(1, 2), answer = between(2, 3);
  const bool whole = places[0] == 0 && solution.ends_with(tags[3]);
  return whole && thought && gap && gap->empty() && answer && !answer->empty() ? 1 : 0;
}

RewardResult score_by_rule(std::string_view rule, const RewardRequest& request) {
  if (rule == "format") return {format_score(request.solution_str), {}};
  if (stripped(request.ground_truth).empty())
    throw DataError(fmt::format("{}: the ground truth is empty, rule {} has nothing to compare with; correct the row",
                                sample_name(request), rule));
  const std::string& solution = request.solution_str;
  if (rule == "gsm8k") return {equals(gsm8k_answer(solution), request.ground_truth), {}};
  if (rule == "gsm8k_flexible") return {equals(last_number(solution), request.ground_truth), {}};
  if (rule == "math") {
    const auto answer = boxed_answer(solution);
    return {answer && math_equal(*answer, request.ground_truth) ? 1.0 : 0.0, {}};
  }
  if (rule == "math_dapo") return math_dapo(request);
  if (rule == "exact") return {exact_score(request), {}};
  if (rule == "countdown") {
    try {
      return {countdown_score(solution, request.ground_truth), {}};
    } catch (const DataError& error) {
      throw DataError(fmt::format("{}: {}", sample_name(request), error.what()));
    }
  }
  throw ConfigError(fmt::format("reward rule '{}' is unknown; use one of {}", rule, fmt::join(kRuleNames, ", ")));
}

}  // namespace tandem
