#include "programs/advantage.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <string>

#include "base/error.h"

namespace tandem {
namespace {

using Group = std::span<Sample>;
constexpr double kEpsilon = 1e-6;

double mean_reward(Group group) {
  double sum = 0;
  for (const Sample& s : group) sum += s.reward;
  return sum / static_cast<double>(group.size());
}

// Two passes, in double: no residue of rounding that a division could blow up.
double sample_std(Group group, double mean) {
  double squares = 0;
  for (const Sample& s : group) squares += (s.reward - mean) * (s.reward - mean);
  return std::sqrt(squares / static_cast<double>(group.size() - 1));
}

bool all_equal(Group group) {
  return std::all_of(group.begin(), group.end(), [&](const Sample& s) { return s.reward == group.front().reward; });
}

void center(Group group) {
  if (group.size() > 1 && all_equal(group)) {
    for (Sample& s : group) s.advantage = 0;
    return;
  }
  const double mean = group.size() == 1 ? 0 : mean_reward(group);
  for (Sample& s : group) s.advantage = s.reward - mean;
}

void grpo(Group group, bool by_std) {
  center(group);
  if (group.size() == 1 || all_equal(group)) return;
  const double scale = by_std ? 1 / (sample_std(group, mean_reward(group)) + kEpsilon) : 1;
  for (Sample& s : group) s.advantage *= scale;
}

void grpo_pass_k(Group group) {
  if (group.size() < 2)
    throw ConfigError("adv_estimator=grpo_passk needs groups of at least 2; set actor_rollout_ref.rollout.n");
  const auto better = [](const Sample& a, const Sample& b) { return a.reward < b.reward; };
  const auto best = std::max_element(group.begin(), group.end(), better);
  double second = -INFINITY;
  for (auto s = group.begin(); s != group.end(); ++s)
    if (s != best) second = std::max(second, s->reward);
  const double gap = best->reward - second;
  for (Sample& s : group) s.advantage = 0;
  if (gap > 0) best->advantage = gap / (sample_std(group, mean_reward(group)) + kEpsilon);
}

void rloo(Group group) {
  center(group);
  if (group.size() == 1) return;
  const double n = static_cast<double>(group.size());
  for (Sample& s : group) s.advantage *= n / (n - 1);
}

void opo(Group group) {
  double tokens = 0, weighted = 0;
  for (const Sample& s : group) tokens += s.response_length, weighted += s.response_length * s.reward;
  const bool equal = all_equal(group);
  for (Sample& s : group) s.advantage = equal ? 0 : s.reward - weighted / tokens;
}

// Every token of a sample has the sample's value, so whitening needs lengths only. Sample variance, eps 1e-8, as
// verl's.
void whiten(RolloutBatch& batch) {
  double tokens = 0, sum = 0, squares = 0;
  for (const Sample& s : batch) tokens += s.response_length, sum += s.response_length * s.advantage;
  if (tokens < 2) throw DataError("whitening needs at least two response tokens in a step");
  if (std::ranges::all_of(batch, [&](const Sample& s) { return s.advantage == batch.front().advantage; })) {
    for (Sample& s : batch) s.advantage = 0;
    return;
  }
  const double mean = sum / tokens;
  for (const Sample& s : batch) squares += s.response_length * (s.advantage - mean) * (s.advantage - mean);
  const double scale = 1 / std::sqrt(squares / (tokens - 1) + 1e-8);
  for (Sample& s : batch) s.advantage = (s.advantage - mean) * scale;
}

template <class Fn>
void for_groups(RolloutBatch& batch, Fn fn) {
  for (size_t begin = 0, end; begin < batch.size(); begin = end) {
    end = begin + 1;
    while (end < batch.size() && batch[end].group == batch[begin].group) ++end;
    fn(Group(batch).subspan(begin, end - begin));
  }
}

}  // namespace

AdvantageEstimator parse_advantage_estimator(std::string_view name, bool by_std) {
  if (name == "grpo") return by_std ? AdvantageEstimator::kGrpo : AdvantageEstimator::kDrGrpo;
  if (name == "grpo_passk") return AdvantageEstimator::kGrpoPassK;
  if (name == "rloo") return AdvantageEstimator::kRloo;
  if (name == "opo") return AdvantageEstimator::kOpo;
  if (name == "reinforce_plus_plus") return AdvantageEstimator::kReinforcePlusPlus;
  if (name == "reinforce_plus_plus_baseline") return AdvantageEstimator::kReinforcePlusPlusBaseline;
  throw ConfigError("unknown algorithm.adv_estimator '" + std::string(name) +
                    "'; known: grpo, grpo_passk, rloo, opo, reinforce_plus_plus, reinforce_plus_plus_baseline");
}

void estimate_advantages(RolloutBatch& batch, AdvantageEstimator estimator) {
  using enum AdvantageEstimator;
  switch (estimator) {
    case kGrpo:
      return for_groups(batch, [](Group g) { grpo(g, true); });
    case kDrGrpo:
      return for_groups(batch, [](Group g) { grpo(g, false); });
    case kGrpoPassK:
      return for_groups(batch, grpo_pass_k);
    case kRloo:
      return for_groups(batch, rloo);
    case kOpo:
      return for_groups(batch, opo);
    case kReinforcePlusPlus:
      for (Sample& s : batch) s.advantage = s.reward;
      return whiten(batch);
    case kReinforcePlusPlusBaseline:
      for_groups(batch, center);
      return whiten(batch);
  }
}

}  // namespace tandem
