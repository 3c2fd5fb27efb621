#include "engine/wire.h"

#include <span>
#include <unordered_map>

#include "data/payload.h"

namespace tandem {
namespace {

PayloadReader reader_of(const std::string& bytes) { return PayloadReader(std::as_bytes(std::span(bytes))); }

template <class Stream, class S>
void fields_of_sample(Stream&& stream, S& s) {
  stream(s.advantage, s.ref_logprobs, s.advantages, s.old_logprobs, s.importance_weights, s.mask, s.old_values,
         s.returns);
}

void put_prompts(PayloadWriter& out, const std::vector<PromptPtr>& prompts) {
  out.put<uint64_t>(prompts.size());
  for (const PromptPtr& prompt : prompts) prompt_fields(out, *prompt);
}

std::vector<PromptPtr> get_prompts(PayloadReader& in) {
  std::vector<PromptPtr> prompts;
  for (auto n = in.get<uint64_t>(); n > 0; --n) {
    auto prompt = std::make_shared<Prompt>();
    prompt_fields(in, *prompt);
    prompts.push_back(std::move(prompt));
  }
  return prompts;
}

}  // namespace

std::string encode_tasks(const std::vector<DrawTask>& tasks) {
  PayloadWriter out;
  out.put<uint64_t>(tasks.size());
  for (const DrawTask& task : tasks) {
    prompt_fields(out, *task.prompt);
    out.put_list(task.samples);
  }
  return out.bytes();
}

std::vector<DrawTask> decode_tasks(const std::string& bytes) {
  PayloadReader in = reader_of(bytes);
  std::vector<DrawTask> tasks;
  for (auto n = in.get<uint64_t>(); n > 0; --n) {
    auto prompt = std::make_shared<Prompt>();
    prompt_fields(in, *prompt);
    tasks.push_back({std::move(prompt), in.get_list<std::vector<uint32_t>>()});
  }
  return tasks;
}

std::string encode_trajectories(const std::vector<TrajectoryPtr>& trajectories) {
  PayloadWriter out;
  out.put<uint64_t>(trajectories.size());
  for (const TrajectoryPtr& t : trajectories) {
    out(t->prompt->id);
    trajectory_fields(out, *t);
  }
  return out.bytes();
}

std::vector<TrajectoryPtr> decode_trajectories(const std::string& bytes, const std::vector<PromptPtr>& prompts) {
  std::unordered_map<uint64_t, PromptPtr> by_id;
  for (const PromptPtr& prompt : prompts) by_id.emplace(prompt->id, prompt);
  PayloadReader in = reader_of(bytes);
  std::vector<TrajectoryPtr> all;
  for (auto n = in.get<uint64_t>(); n > 0; --n) {
    auto t = std::make_shared<Trajectory>();
    t->prompt = by_id.at(in.get<uint64_t>());
    trajectory_fields(in, *t);
    all.push_back(std::move(t));
  }
  return all;
}

std::string encode_samples(const std::vector<TrainingSample>& samples) {
  std::vector<PromptPtr> prompts;
  std::unordered_map<const Prompt*, uint64_t> place;
  for (const TrainingSample& sample : samples)
    if (place.emplace(sample.trajectory->prompt.get(), prompts.size()).second)
      prompts.push_back(sample.trajectory->prompt);
  PayloadWriter out;
  put_prompts(out, prompts);
  out.put<uint64_t>(samples.size());
  for (const TrainingSample& sample : samples) {
    out(place.at(sample.trajectory->prompt.get()));
    trajectory_fields(out, *sample.trajectory);
    fields_of_sample(out, sample);
  }
  return out.bytes();
}

std::vector<TrainingSample> decode_samples(const std::string& bytes) {
  PayloadReader in = reader_of(bytes);
  const std::vector<PromptPtr> prompts = get_prompts(in);
  std::vector<TrainingSample> samples;
  for (auto n = in.get<uint64_t>(); n > 0; --n) {
    auto t = std::make_shared<Trajectory>();
    t->prompt = prompts.at(in.get<uint64_t>());
    trajectory_fields(in, *t);
    TrainingSample& sample = samples.emplace_back();
    fields_of_sample(in, sample);
    sample.trajectory = std::move(t);
  }
  return samples;
}

}  // namespace tandem
