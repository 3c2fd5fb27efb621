#include "app/step_report.h"

#include <algorithm>
#include <map>

#include "observe/host_info.h"

namespace tandem {
namespace {

template <class Get>
std::vector<double> collect(const RolloutBatch& batch, Get get) {
  std::vector<double> values;
  for (const Sample& sample : batch) values.push_back(static_cast<double>(get(sample)));
  return values;
}

double share(const RolloutBatch& batch, bool (*is)(const Sample&, int64_t), int64_t argument) {
  const auto hits = std::count_if(batch.begin(), batch.end(), [&](const Sample& s) { return is(s, argument); });
  return batch.empty() ? 0 : static_cast<double>(hits) / static_cast<double>(batch.size());
}

void add_extras(Metrics& metrics, const ScoredBatch& batch) {
  std::map<std::string, std::vector<double>> by_name;
  for (const auto& extras : batch.extras)
    for (const auto& [name, value] : extras) by_name[name].push_back(value);
  for (const auto& [name, values] : by_name) add_summary(metrics, "reward/" + name, values);
}

std::string last_message(const Prompt& prompt) { return prompt.messages.empty() ? "" : prompt.messages.back().content; }

}  // namespace

Metrics batch_metrics(const ScoredBatch& scored, int64_t max_response_length, int64_t max_prompt_length) {
  const RolloutBatch& batch = scored.samples;
  Metrics metrics;
  add_summary(metrics, "critic/score", collect(batch, [](const Sample& s) { return s.score; }));
  add_summary(metrics, "critic/rewards", collect(batch, [](const Sample& s) { return s.reward; }));
  add_summary(metrics, "critic/advantages", collect(batch, [](const Sample& s) { return s.advantage; }));
  add_summary(metrics, "response_length", collect(batch, [](const Sample& s) { return s.response_length; }));
  metrics.set("response_length/clip_ratio",
              share(
                  batch, [](const Sample& s, int64_t most) { return s.response_length >= most; }, max_response_length));
  add_summary(metrics, "prompt_length", collect(batch, [](const Sample& s) { return s.prompt_length; }));
  metrics.set("prompt_length/clip_ratio",
              share(
                  batch, [](const Sample& s, int64_t most) { return s.prompt_length >= most; }, max_prompt_length));
  double entropy = 0, tokens = 0;
  for (const Sample& s : batch) entropy += s.mean_entropy * s.response_length, tokens += s.response_length;
  if (tokens > 0) metrics.set("actor/entropy", entropy / tokens);
  add_extras(metrics, scored);
  return metrics;
}

Metrics throughput_metrics(const RolloutBatch& batch, double seconds) {
  double tokens = 0;
  for (const Sample& s : batch) tokens += s.prompt_length + s.response_length;
  const ProcessMemory memory = process_memory();
  Metrics metrics;
  metrics.set("perf/total_num_tokens", tokens);
  metrics.set("perf/time_per_step", seconds);
  metrics.set("perf/throughput", seconds > 0 ? tokens / seconds : 0);
  metrics.set("perf/cpu_memory_used_gb", memory.resident_gb);
  metrics.set("perf/cpu_memory_peak_gb", memory.peak_gb);
  return metrics;
}

SampleRecord sample_record(int64_t step, const Sample& sample, const Trajectory& trajectory,
                           const Tokenizer& tokenizer) {
  SampleRecord record;
  record.step = step;
  record.data_source = trajectory.prompt->data_source;
  record.prompt = last_message(*trajectory.prompt);
  record.response = tokenizer.decode(trajectory.response_ids);
  record.ground_truth = trajectory.prompt->ground_truth;
  record.score = sample.score;
  record.reward = sample.reward;
  record.advantage = sample.advantage;
  record.stop_reason = to_string(sample.stop_reason);
  record.prompt_ids = trajectory.prompt->token_ids;
  record.response_ids = trajectory.response_ids;
  record.logprobs = trajectory.rollout_logprobs;
  return record;
}

std::vector<ValidationSample> validation_samples(const ScoredBatch& batch, const TrajectoryStore& store) {
  std::vector<ValidationSample> samples;
  for (size_t i = 0; i < batch.samples.size(); ++i) {
    const Sample& sample = batch.samples[i];
    ValidationSample& out = samples.emplace_back();
    out.data_source = store.get(sample.handle)->prompt->data_source;
    out.prompt = sample.prompt_id;
    out.score = sample.score;
    bool has_acc = false;
    for (const auto& [name, value] : batch.extras[i]) {
      if (name == "acc") {
        out.acc = value, has_acc = true;
      } else {
        out.extras.push_back({name, value});
      }
    }
    if (!has_acc) out.acc = sample.score;  // as verl logs scores that are plain numbers
  }
  return samples;
}

}  // namespace tandem
