#include "observe/validation_metrics.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "base/rng.h"

namespace tandem {
namespace {

constexpr uint64_t kSeed = 42;
constexpr size_t kDraws = 1000;

// The values of one variable over the responses to one prompt, and which answer each gave (equal answers, equal ids).
struct Responses {
  std::vector<double> values;
  std::vector<uint32_t> votes;  // empty without pred
};

struct MeanStd {
  double mean = 0, std = 0;
};

MeanStd mean_std(const std::vector<double>& values) {
  const auto count = static_cast<double>(values.size());
  double sum = 0, squares = 0;
  for (const double value : values) sum += value;
  const double mean = sum / count;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return {mean, std::sqrt(squares / count)};
}

// Which responses each bootstrap draw takes. Like verl's, which seeds anew for every prompt, it depends on (N, n) only.
class Bootstrap {
 public:
  const std::vector<uint32_t>& indices(size_t responses, size_t subset) {
    auto& table = tables_[{responses, subset}];
    if (table.empty()) {
      Philox random(kSeed);
      table.reserve(kDraws * subset);
      for (size_t i = 0; i < kDraws * subset; ++i) table.push_back(static_cast<uint32_t>(random.below(responses)));
    }
    return table;
  }

 private:
  std::map<std::pair<size_t, size_t>, std::vector<uint32_t>> tables_;
};

// NaN counts as both the best and the worst: it must not vanish.
double best_of(const std::vector<double>& values, std::span<const uint32_t> drawn) {
  double best = values[drawn[0]];
  for (const uint32_t i : drawn)
    if (std::isnan(values[i]) || values[i] > best) best = values[i];
  return best;
}

double worst_of(const std::vector<double>& values, std::span<const uint32_t> drawn) {
  double worst = values[drawn[0]];
  for (const uint32_t i : drawn)
    if (std::isnan(values[i]) || values[i] < worst) worst = values[i];
  return worst;
}

double majority_of(const Responses& responses, std::span<const uint32_t> drawn) {
  std::vector<uint32_t> counts(responses.votes.size(), 0);
  for (const uint32_t i : drawn) ++counts[responses.votes[i]];
  uint32_t chosen = drawn[0];
  for (const uint32_t i : drawn)
    if (counts[responses.votes[i]] > counts[responses.votes[chosen]]) chosen = i;
  return responses.values[chosen];
}

std::vector<size_t> subset_sizes(size_t responses) {
  std::vector<size_t> sizes;
  for (size_t n = 2; n < responses; n *= 2) sizes.push_back(n);
  if (responses > 1) sizes.push_back(responses);
  return sizes;
}

template <class Reduce>
MeanStd bootstrap(const std::vector<uint32_t>& indices, size_t subset, Reduce reduce) {
  std::vector<double> results;
  results.reserve(kDraws);
  for (size_t i = 0; i < kDraws; ++i) results.push_back(reduce(std::span(indices).subspan(i * subset, subset)));
  return mean_std(results);
}

void set_mean_std(Metrics& metrics, const std::string& name, const MeanStd& value) {
  metrics.set(name + "/mean", value.mean);
  metrics.set(name + "/std", value.std);
}

Metrics prompt_metrics(const Responses& responses, Bootstrap& draws) {
  Metrics metrics;
  const size_t count = responses.values.size();
  const MeanStd whole = mean_std(responses.values);
  metrics.set("mean@" + std::to_string(count), whole.mean);
  if (count > 1) metrics.set("std@" + std::to_string(count), whole.std);
  for (const size_t n : subset_sizes(count)) {
    const auto& indices = draws.indices(count, n);
    const std::string at_n = '@' + std::to_string(n);
    set_mean_std(metrics, "best" + at_n, bootstrap(indices, n, [&](auto d) { return best_of(responses.values, d); }));
    set_mean_std(metrics, "worst" + at_n, bootstrap(indices, n, [&](auto d) { return worst_of(responses.values, d); }));
    if (responses.votes.empty()) continue;
    set_mean_std(metrics, "maj" + at_n, bootstrap(indices, n, [&](auto d) { return majority_of(responses, d); }));
  }
  return metrics;
}

struct DataSource {
  std::string name;
  std::vector<const ValidationSample*> samples;
  std::vector<std::vector<const ValidationSample*>> prompts;  // the same samples, in the order of first appearance
};

std::vector<DataSource> group(std::span<const ValidationSample> samples) {
  std::vector<DataSource> sources;
  std::unordered_map<std::string_view, size_t> source_of;
  std::map<std::pair<size_t, uint64_t>, size_t> prompt_of;
  for (const ValidationSample& sample : samples) {
    const auto [source, new_source] = source_of.try_emplace(sample.data_source, sources.size());
    if (new_source) sources.push_back({sample.data_source, {}, {}});
    DataSource& to = sources[source->second];
    to.samples.push_back(&sample);
    const auto [prompt, new_prompt] = prompt_of.try_emplace({source->second, sample.prompt}, to.prompts.size());
    if (new_prompt) to.prompts.emplace_back();
    to.prompts[prompt->second].push_back(&sample);
  }
  return sources;
}

std::optional<double> value_of(const ValidationSample& sample, const std::string& variable) {
  if (variable == "reward") return sample.score;
  if (variable == "acc" && sample.acc) return sample.acc;
  for (const Metric& extra : sample.extras)
    if (extra.name == variable) return extra.value;
  return std::nullopt;
}

void require_all(const DataSource& source, const std::string& variable, size_t having) {
  if (having == source.samples.size()) return;
  throw DataError("validation of " + source.name + ": " + std::to_string(source.samples.size() - having) + " of " +
                  std::to_string(source.samples.size()) + " samples have no '" + variable +
                  "'; the reward function must return the same keys for every row of a data source");
}

std::vector<std::string> variables_of(const DataSource& source) {
  std::vector<std::string> variables{"reward"};
  const auto add = [&](const std::string& name) {
    if (std::find(variables.begin(), variables.end(), name) == variables.end()) variables.push_back(name);
  };
  for (const ValidationSample* sample : source.samples) {
    if (sample->acc) add("acc");
    for (const Metric& extra : sample->extras) add(extra.name);
  }
  for (const std::string& variable : variables)
    require_all(source, variable, std::count_if(source.samples.begin(), source.samples.end(), [&](const auto* sample) {
                  return value_of(*sample, variable).has_value();
                }));
  return variables;
}

bool has_votes(const DataSource& source) {
  const auto having =
      std::count_if(source.samples.begin(), source.samples.end(), [](const auto* s) { return s->pred.has_value(); });
  if (having != 0) require_all(source, "pred", having);
  return having != 0;
}

Responses collect(const std::vector<const ValidationSample*>& prompt, const std::string& variable, bool votes) {
  Responses responses;
  std::unordered_map<std::string_view, uint32_t> vote_ids;
  for (const ValidationSample* sample : prompt) {
    responses.values.push_back(*value_of(*sample, variable));
    if (!votes) continue;
    const auto id = vote_ids.try_emplace(*sample->pred, static_cast<uint32_t>(vote_ids.size())).first->second;
    responses.votes.push_back(id);
  }
  return responses;
}

// Each metric averaged over the prompts that have it: prompts may differ in N.
Metrics average(const std::vector<Metrics>& prompts) {
  Metrics sums, counts, means;
  for (const Metrics& prompt : prompts) {
    for (const Metric& metric : prompt) {
      sums.set(metric.name, sums.get(metric.name).value_or(0) + metric.value);
      counts.set(metric.name, counts.get(metric.name).value_or(0) + 1);
    }
  }
  for (const Metric& sum : sums) means.set(sum.name, sum.value / *counts.get(sum.name));
  return means;
}

// "best@8/mean" of the core variable is core when 8 is the greatest N.
bool is_core(std::string_view metric, size_t greatest) {
  const bool kind = metric.starts_with("mean@") || metric.starts_with("maj@") || metric.starts_with("best@");
  const auto number = metric.substr(metric.find('@') + 1);
  return kind && number.substr(0, number.find('/')) == std::to_string(greatest);
}

}  // namespace

Metrics compute_validation_metrics(std::span<const ValidationSample> samples) {
  Metrics metrics;
  Bootstrap draws;
  for (const DataSource& source : group(samples)) {
    const auto variables = variables_of(source);
    const bool votes = has_votes(source);
    const bool has_acc = std::find(variables.begin(), variables.end(), "acc") != variables.end();
    size_t greatest = 0;
    for (const auto& prompt : source.prompts) greatest = std::max(greatest, prompt.size());
    for (const std::string& variable : variables) {
      std::vector<Metrics> by_prompt;
      for (const auto& prompt : source.prompts)
        by_prompt.push_back(prompt_metrics(collect(prompt, variable, votes), draws));
      const bool core_variable = variable == (has_acc ? "acc" : "reward");
      for (const Metric& metric : average(by_prompt)) {
        const bool core = core_variable && is_core(metric.name, greatest);
        metrics.set((core ? "val-core/" : "val-aux/") + source.name + '/' + variable + '/' + metric.name, metric.value);
      }
    }
  }
  return metrics;
}

}  // namespace tandem
