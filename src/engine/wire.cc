#include "engine/wire.h"

#include <cstring>
#include <type_traits>
#include <unordered_map>

#include "base/error.h"

namespace tandem {
namespace {

// One list of fields an item serves both directions.
class Writer {
 public:
  template <class... T>
  void operator()(const T&... values) {
    (put(values), ...);
  }
  std::string take() { return std::move(bytes_); }

 private:
  template <class T>
  void put(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  template <class T>
  void put(const std::vector<T>& values) {
    put(static_cast<uint64_t>(values.size()));
    bytes_.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
  }
  std::string bytes_;
};

class Reader {
 public:
  explicit Reader(const std::string& bytes) : bytes_(bytes) {}
  template <class... T>
  void operator()(T&... values) {
    (get(values), ...);
  }
  uint64_t count() {
    uint64_t n = 0;
    get(n);
    return n;
  }

 private:
  const char* take(size_t size) {
    check(size <= bytes_.size() - next_, "a message between ranks is cut short");
    next_ += size;
    return bytes_.data() + next_ - size;
  }
  template <class T>
  void get(T& value) {
    std::memcpy(&value, take(sizeof value), sizeof value);
  }
  template <class T>
  void get(std::vector<T>& values) {
    values.resize(count());
    if (!values.empty()) std::memcpy(values.data(), take(values.size() * sizeof(T)), values.size() * sizeof(T));
  }
  const std::string& bytes_;
  size_t next_ = 0;
};

template <class Stream, class P>
void fields_of_prompt(Stream&& stream, P& prompt) {
  stream(prompt.id, prompt.token_ids);
}
template <class Stream, class T>
void fields_of_trajectory(Stream&& stream, T& t) {
  stream(t.sample_index, t.policy_version, t.temperature, t.response_ids, t.rollout_logprobs, t.response_mask,
         t.stop_reason, t.mean_entropy);
}
template <class Stream, class S>
void fields_of_sample(Stream&& stream, S& s) {
  stream(s.advantage, s.ref_logprobs, s.advantages, s.old_logprobs, s.importance_weights, s.mask, s.old_values,
         s.returns);
}

}  // namespace

std::string encode_prompts(const std::vector<PromptPtr>& prompts) {
  Writer out;
  out(static_cast<uint64_t>(prompts.size()));
  for (const PromptPtr& prompt : prompts) fields_of_prompt(out, *prompt);
  return out.take();
}

std::vector<PromptPtr> decode_prompts(const std::string& bytes) {
  Reader in(bytes);
  std::vector<PromptPtr> prompts;
  for (uint64_t n = in.count(); n > 0; --n) {
    auto prompt = std::make_shared<Prompt>();
    fields_of_prompt(in, *prompt);
    prompts.push_back(std::move(prompt));
  }
  return prompts;
}

std::string encode_trajectories(const std::vector<TrajectoryPtr>& trajectories) {
  Writer out;
  out(static_cast<uint64_t>(trajectories.size()));
  for (const TrajectoryPtr& t : trajectories) {
    out(t->prompt->id);
    fields_of_trajectory(out, *t);
  }
  return out.take();
}

std::vector<TrajectoryPtr> decode_trajectories(const std::string& bytes, const std::vector<PromptPtr>& prompts) {
  std::unordered_map<uint64_t, PromptPtr> by_id;
  for (const PromptPtr& prompt : prompts) by_id.emplace(prompt->id, prompt);
  Reader in(bytes);
  std::vector<TrajectoryPtr> all;
  for (uint64_t n = in.count(); n > 0; --n) {
    auto t = std::make_shared<Trajectory>();
    t->prompt = by_id.at(in.count());
    fields_of_trajectory(in, *t);
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
  Writer out;
  out(static_cast<uint64_t>(prompts.size()));
  for (const PromptPtr& prompt : prompts) fields_of_prompt(out, *prompt);
  out(static_cast<uint64_t>(samples.size()));
  for (const TrainingSample& sample : samples) {
    out(place.at(sample.trajectory->prompt.get()));
    fields_of_trajectory(out, *sample.trajectory);
    fields_of_sample(out, sample);
  }
  return out.take();
}

std::vector<TrainingSample> decode_samples(const std::string& bytes) {
  Reader in(bytes);
  std::vector<PromptPtr> prompts;
  for (uint64_t n = in.count(); n > 0; --n) {
    auto prompt = std::make_shared<Prompt>();
    fields_of_prompt(in, *prompt);
    prompts.push_back(std::move(prompt));
  }
  std::vector<TrainingSample> samples;
  for (uint64_t n = in.count(); n > 0; --n) {
    auto t = std::make_shared<Trajectory>();
    t->prompt = prompts.at(in.count());
    fields_of_trajectory(in, *t);
    TrainingSample& sample = samples.emplace_back();
    fields_of_sample(in, sample);
    sample.trajectory = std::move(t);
  }
  return samples;
}

}  // namespace tandem
