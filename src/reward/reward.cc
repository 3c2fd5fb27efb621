#include "reward/reward.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"
#include "reward/function.h"
#include "reward/rules.h"
#include "reward/server.h"

namespace tandem {
namespace {

struct SourceRule {
  std::string_view data_source;
  std::string_view rule;
};

// verl's table (verl/utils/reward_score/__init__.py), as far as its rules are offered here.
constexpr std::array kSourceRules = {
    SourceRule{"openai/gsm8k", "gsm8k"},
    SourceRule{"lighteval/MATH", "math"},
    SourceRule{"DigitalLearningGmbH/MATH-lighteval", "math"},
    SourceRule{"HuggingFaceH4/MATH-500", "math"},
    SourceRule{"math_dapo", "math_dapo"},
    SourceRule{"math", "math_dapo"},
    SourceRule{"math_dapo_reasoning", "math_dapo"},
    SourceRule{"countdown", "countdown"},
    SourceRule{"ChilleD/SVAMP", "gsm8k"},
    SourceRule{"tandem/arithmetic", "exact"},
};
constexpr std::string_view kAime = "aime";  // a prefix: aime2024, aime_2025 ...

class RuleReward final : public RewardFunction {
 public:
  explicit RuleReward(std::string rule) : rule_(std::move(rule)) {}

  std::future<RewardResult> submit(RewardRequest request) override {
    std::promise<RewardResult> result;
    try {
      result.set_value(scored(request));
    } catch (...) {
      result.set_exception(std::current_exception());
    }
    return result.get_future();
  }

 private:
  RewardResult scored(const RewardRequest& request) const {
    RewardResult result = score_by_rule(rule_.empty() ? rule_for_data_source(request.data_source) : rule_, request);
    check_score(result.score, request);
    return result;
  }

  const std::string rule_;  // empty: by data_source
};

}  // namespace

std::vector<RewardResult> RewardFunction::score(std::span<const RewardRequest> requests) {
  std::vector<std::future<RewardResult>> pending;
  for (const RewardRequest& request : requests) pending.push_back(submit(request));
  std::vector<RewardResult> results;
  for (auto& result : pending) results.push_back(result.get());
  return results;
}

std::string sample_name(const RewardRequest& request) {
  return fmt::format("sample {} of prompt {} (data_source '{}')", request.sample_index, request.prompt_id,
                     request.data_source);
}

std::string rule_for_data_source(const std::string& data_source) {
  for (const SourceRule& entry : kSourceRules)
    if (entry.data_source == data_source) return std::string(entry.rule);
  if (data_source.starts_with(kAime)) return "math_dapo";
  std::vector<std::string_view> known;
  for (const SourceRule& entry : kSourceRules) known.push_back(entry.data_source);
  throw DataError(
      fmt::format("no reward rule for data_source '{}'; known are {}, {}*; set reward.rule to one of {}, or "
                  "reward.custom_reward_function.path to your own function",
                  data_source, fmt::join(known, ", "), kAime, fmt::join(rule_names(), ", ")));
}

void check_score(double score, const RewardRequest& request) {
  if (!std::isfinite(score))
    throw DataError(fmt::format("reward of {} is {}; it must be a finite number", sample_name(request), score));
}

std::unique_ptr<RewardFunction> make_reward(const RewardOptions& options) {
  if (!options.path.empty()) return std::make_unique<PythonReward>(options);
  if (!options.server.endpoint.empty()) return std::make_unique<ServerReward>(options.server);
  const auto names = rule_names();
  if (!options.rule.empty() && std::find(names.begin(), names.end(), options.rule) == names.end())
    throw ConfigError(fmt::format("reward.rule={} is unknown; use one of {}", options.rule, fmt::join(names, ", ")));
  return std::make_unique<RuleReward>(options.rule);
}

}  // namespace tandem
