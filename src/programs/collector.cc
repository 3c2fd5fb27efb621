#include "programs/collector.h"

#include <fmt/format.h>

#include <set>

#include "base/error.h"

namespace tandem {
namespace {

double metric_of(const ScoredBatch& batch, size_t i, const std::string& name) {
  const Sample& sample = batch.samples[i];
  if (name == "seq_reward" || name == "seq_final_reward") return sample.reward;
  for (const auto& [key, value] : batch.extras[i])
    if (key == name) return value;
  if (name == "acc" || name == "score") return sample.score;  // as verl logs scores that are plain numbers
  throw DataError(fmt::format(
      "algorithm.filter_groups.metric={} is not among what the reward function gave sample {} of prompt {}; "
      "return it in the dict, or use acc, score or seq_reward",
      name, sample.sample_index, sample.prompt_id));
}

// Ends of the groups, which are neighbours.
std::vector<size_t> group_ends(const RolloutBatch& batch) {
  std::vector<size_t> ends;
  for (size_t i = 1; i <= batch.size(); ++i)
    if (i == batch.size() || batch[i].group != batch[i - 1].group) ends.push_back(i);
  return ends;
}

// Appends the groups that differ (all, where `metric` is empty), numbering them on.
size_t append_groups(ScoredBatch& all, const ScoredBatch& drawn, const std::string& metric, size_t num_groups) {
  size_t begin = 0;
  for (const size_t end : group_ends(drawn.samples)) {
    bool differs = metric.empty() || end - begin == 1;
    for (size_t i = begin; !differs && i < end; ++i)
      differs = metric_of(drawn, i, metric) != metric_of(drawn, begin, metric);
    for (size_t i = begin; differs && i < end; ++i) {
      all.samples.push_back(drawn.samples[i]);
      all.samples.back().group = static_cast<uint32_t>(num_groups);
      all.extras.push_back(drawn.extras[i]);
    }
    num_groups += differs ? 1 : 0;
    begin = end;
  }
  return num_groups;
}

PromptList take_unseen(const PromptSource& prompts, size_t count, std::set<uint64_t>& seen, size_t& taken) {
  PromptList fresh;
  for (const PromptPtr& prompt : prompts(count)) {
    ++taken;
    if (seen.insert(prompt->id).second) fresh.push_back(prompt);
  }
  return fresh;
}

// Steps of another size than the data's batches cross the end of an epoch, where a prompt may come again.
PromptList take_distinct(const PromptSource& prompts, size_t count) {
  std::set<uint64_t> seen;
  size_t taken = 0;
  PromptList all;
  while (all.size() < count)
    for (PromptPtr& prompt : take_unseen(prompts, count - all.size(), seen, taken)) all.push_back(std::move(prompt));
  return all;
}

}  // namespace

ScoredBatch Collector::draw(const PromptList& prompts) {
  const RolloutBatch drawn = actor_.call<&Engine::generate>("gen", prompts);
  ScoredBatch scored = reward_.call<&RewardWorker::score>("reward", drawn);
  if (!options_.greedy_baseline) return scored;
  const RolloutBatch greedy = actor_.call<&Engine::generate_greedy>("gen_max", prompts);
  const ScoredBatch baseline = reward_.call<&RewardWorker::score>("reward", greedy);
  for (Sample& sample : scored.samples) sample.baseline = baseline.samples[sample.group].reward;
  return scored;
}

ScoredBatch Collector::collect(const PromptSource& prompts) {
  metrics_ = {};
  return options_.filter_groups ? collect_filtered(prompts) : draw(take_distinct(prompts, options_.prompts_per_step));
}

ScoredBatch Collector::collect_filtered(const PromptSource& prompts) {
  ScoredBatch all;
  std::set<uint64_t> seen;
  size_t num_groups = 0, num_taken = 0;
  int64_t num_draws = 0;
  while (num_groups < options_.prompts_per_step) {
    const bool out_of_draws = options_.max_num_gen_batches > 0 && num_draws >= options_.max_num_gen_batches;
    const bool out_of_data = seen.size() >= options_.num_train_prompts || num_taken >= 2 * options_.num_train_prompts;
    if (num_draws > 0 && (out_of_draws || out_of_data))
      throw DataError(fmt::format(
          "algorithm.filter_groups: after {} draws of {} prompts only {} of {} groups differ in {}{}; raise "
          "algorithm.filter_groups.max_num_gen_batches or rollout.n, lower data.train_batch_size, or take "
          "easier or harder data",
          num_draws, seen.size(), num_groups, options_.prompts_per_step, options_.filter_metric,
          out_of_data ? " and the data is used up" : ""));
    const PromptList fresh = take_unseen(prompts, options_.prompts_per_step - num_groups, seen, num_taken);
    if (fresh.empty()) continue;
    num_groups = append_groups(all, draw(fresh), options_.filter_metric, num_groups);
    ++num_draws;
  }
  metrics_.set("training/num_gen_batches", static_cast<double>(num_draws));
  metrics_.set("training/num_gen_prompts", static_cast<double>(seen.size()));
  metrics_.set("training/filtered_groups", static_cast<double>(seen.size() - num_groups));
  return all;
}

}  // namespace tandem
