#include "programs/advantage.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>

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

void grpo_pass_k(Group group, bool by_std) {
  if (group.size() < 2)
    throw ConfigError("adv_estimator=grpo_passk needs groups of at least 2; set actor_rollout_ref.rollout.n");
  const auto better = [](const Sample& a, const Sample& b) { return a.reward < b.reward; };
  const auto best = std::max_element(group.begin(), group.end(), better);
  double second = -INFINITY;
  for (auto s = group.begin(); s != group.end(); ++s)
    if (s != best) second = std::max(second, s->reward);
  const double gap = best->reward - second;
  for (Sample& s : group) s.advantage = 0;
  if (gap > 0) best->advantage = by_std ? gap / (sample_std(group, mean_reward(group)) + kEpsilon) : gap;
}

void rloo(Group group) {
  center(group);
  if (group.size() == 1) return;
  const double n = static_cast<double>(group.size());
  for (Sample& s : group) s.advantage *= n / (n - 1);
}

void opo(Group group) {
  double tokens = 0, weighted = 0;
  for (const Sample& s : group) tokens += s.trained_length, weighted += s.trained_length * s.reward;
  const bool idle = all_equal(group) || tokens == 0;
  for (Sample& s : group) s.advantage = idle ? 0 : s.reward - weighted / tokens;
}

// Every token of a sample has the sample's value, so whitening needs lengths only. Sample variance, eps 1e-8, as
// verl's.
void whiten(RolloutBatch& batch) {
  double tokens = 0, sum = 0, squares = 0;
  for (const Sample& s : batch) tokens += s.trained_length, sum += s.trained_length * s.advantage;
  if (tokens == 1) throw DataError("whitening needs at least two response tokens in a step");
  const auto first = std::ranges::find_if(batch, [](const Sample& s) { return s.trained_length > 0; });
  const auto as_first = [&](const Sample& s) { return s.trained_length == 0 || s.advantage == first->advantage; };
  if (tokens == 0 || std::ranges::all_of(batch, as_first)) {
    for (Sample& s : batch) s.advantage = 0;
    return;
  }
  const double mean = sum / tokens;
  for (const Sample& s : batch) squares += s.trained_length * (s.advantage - mean) * (s.advantage - mean);
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

void gpg(RolloutBatch& batch) {
  const auto scoring = std::ranges::count_if(batch, [](const Sample& s) { return s.reward != 0; });
  const double scale = static_cast<double>(batch.size()) / static_cast<double>(std::max<int64_t>(1, scoring));
  for_groups(batch, [&](Group group) {
    center(group);
    for (Sample& s : group) s.advantage *= scale;
  });
}

double reward_by_key(const ScoredBatch& batch, size_t i, const std::string& key) {
  for (const auto& [name, value] : batch.extras[i])
    if (name == key) return value;
  if (key == "score") return batch.samples[i].score;
  throw DataError(
      fmt::format("algorithm.gdpo_reward_keys names '{}', but the reward function gave sample {} of prompt {} no such "
                  "number; return it in the dict",
                  key, batch.samples[i].sample_index, batch.samples[i].prompt_id));
}

void gdpo(ScoredBatch& batch, const AdvantageOptions& options) {
  RolloutBatch by_key = batch.samples;
  for (Sample& s : batch.samples) s.advantage = 0;
  for (size_t k = 0; k < options.gdpo_keys.size(); ++k) {
    for (size_t i = 0; i < by_key.size(); ++i) by_key[i].reward = reward_by_key(batch, i, options.gdpo_keys[k]);
    for_groups(by_key, [&](Group group) { grpo(group, options.by_std); });
    const double weight = options.gdpo_weights.empty() ? 1 : options.gdpo_weights[k];
    for (size_t i = 0; i < by_key.size(); ++i) batch.samples[i].advantage += weight * by_key[i].advantage;
  }
  whiten(batch.samples);
}

void estimate(ScoredBatch& batch, const AdvantageOptions& options) {
  using enum AdvantageEstimator;
  switch (options.estimator) {
    case kGrpo:
      return for_groups(batch.samples, [&](Group g) { grpo(g, options.by_std); });
    case kGrpoPassK:
      return for_groups(batch.samples, [&](Group g) { grpo_pass_k(g, options.by_std); });
    case kRloo:
      return for_groups(batch.samples, rloo);
    case kOpo:
      return for_groups(batch.samples, opo);
    case kGpg:
      return gpg(batch.samples);
    case kGdpo:
      return gdpo(batch, options);
    case kReinforcePlusPlusBaseline:
      for_groups(batch.samples, center);
      return whiten(batch.samples);
  }
}

}  // namespace

std::optional<AdvantageEstimator> find_advantage_estimator(std::string_view name) {
  using enum AdvantageEstimator;
  if (name == "grpo") return kGrpo;
  if (name == "grpo_passk") return kGrpoPassK;
  if (name == "rloo") return kRloo;
  if (name == "opo") return kOpo;
  if (name == "gpg") return kGpg;
  if (name == "gdpo") return kGdpo;
  if (name == "reinforce_plus_plus_baseline") return kReinforcePlusPlusBaseline;
  return std::nullopt;
}

void estimate_advantages(ScoredBatch& batch, const AdvantageOptions& options) {
  estimate(batch, options);
  for (Sample& s : batch.samples)
    if (s.trained_length == 0) s.advantage = 0;
}

}  // namespace tandem
