#include "app/bench_engine.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "app/roofline.h"
#include "base/rng.h"
#include "engine/engine.h"
#include "kernels/device_ops.h"
#include "programs/advantage.h"

namespace tandem {
namespace {

using Clock = std::chrono::steady_clock;

template <class Fn>
double seconds_of(Fn run) {
  const auto start = Clock::now();
  run();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::vector<PromptPtr> random_prompts(const BenchArguments& a, int64_t vocab, uint64_t seed) {
  Philox random(seed);
  std::vector<PromptPtr> prompts;
  for (int64_t i = 0; i < a.prompts; ++i) {
    auto prompt = std::make_shared<Prompt>();
    prompt->id = seed * 1000000 + static_cast<uint64_t>(i);
    const int64_t shorter = a.ragged ? i % std::max<int64_t>(1, a.prompt_tokens / 2) : 0;
    for (int64_t t = shorter; t < a.prompt_tokens; ++t)
      prompt->token_ids.push_back(static_cast<TokenId>(random.below(static_cast<uint64_t>(vocab))));
    prompts.push_back(std::move(prompt));
  }
  return prompts;
}

EngineOptions engine_options(const BenchArguments& a) {
  EngineOptions o;
  o.device = at::Device(a.device);
  o.max_model_len = a.prompt_tokens + a.new_tokens;
  o.scheduler.max_num_seqs = a.prompts * a.samples;
  o.scheduler.max_num_batched_tokens = a.batched_tokens;
  o.kv_cache_bytes = a.kv_cache_mb << 20;
  o.sampling.max_tokens = o.sampling.min_tokens = o.validation_sampling.max_tokens = a.new_tokens;
  o.sampling.ignore_eos = true;
  if (a.ragged) {  // of random weights' draws, one in a hundred ends a response
    o.sampling.min_tokens = 1;
    for (TokenId id = 0; id < 1500; ++id) o.sampling.stop_token_ids.push_back(id);
  }
  o.num_samples = a.samples;
  o.trainer.mini_batch_samples = a.prompts * a.samples;
  o.trainer.max_micro_tokens = a.micro_tokens;
  o.trainer.activation_bytes = a.activation_mb << 20;
  return o;
}

// What the planner (tandem simulate --calibrate) needs beside the times.
void print_setup(const BenchArguments& a) {
  const nlohmann::ordered_json line{{"name", "setup"},
                                    {"model", std::filesystem::absolute(a.model).string()},
                                    {"device", a.device},
                                    {"threads", a.threads},
                                    {"ranks", std::max(1, a.ranks)},
                                    {"replicas", a.replicas},
                                    {"prompts", a.prompts},
                                    {"samples", a.samples},
                                    {"prompt_tokens", a.prompt_tokens},
                                    {"new_tokens", a.new_tokens},
                                    {"micro_tokens", a.micro_tokens},
                                    {"activation_bytes", a.activation_mb << 20}};
  fmt::print("{}\n", line.dump());
}

class Bench {
 public:
  explicit Bench(const BenchArguments& a) : arguments_(a), store_(std::make_shared<TrajectoryStore>()) {
    const double seconds = seconds_of([&] {
      const at::Device device(a.device);
      if (!device.is_cpu()) kernels::device_ops();
      ModelConfig config = load_model_config(a.model);
      DecoderWeights weights = random_weights(config, device);
      if (device.is_cpu()) weights = converted(weights, at::device(at::kCPU).dtype(at::kFloat));
      auto decoder = std::make_unique<Decoder>(std::move(config), std::move(weights), a.prompt_tokens + a.new_tokens);
      EngineOptions options = engine_options(a);
      options.on_pass = [this](const GeneratorPass& pass) {
        if (!first_pass_) first_pass_ = pass.begin;
        last_pass_ = pass.end;
      };
      engine_ = std::make_unique<Engine>(std::move(options), std::move(decoder), nullptr, store_);
    });
    if (!a.leads()) return;
    fmt::print(R"({{"name": "start", "seconds": {:.2f}}})"
               "\n",
               seconds);
  }

  Engine& engine() { return *engine_; }

  void rollout() {
    for (int64_t i = 0; i < arguments_.repeats; ++i) {
      const auto prompts = random_prompts(arguments_, vocab(), static_cast<uint64_t>(i + 1));
      RolloutBatch batch;
      const double seconds = seconds_of([&] { batch = engine_->generate(prompts); });
      int64_t tokens = 0;
      for (const Sample& sample : batch) tokens += sample.response_length;
      report("rollout", seconds, tokens);
      best_rollout_ = std::min(best_rollout_, seconds);
      if (arguments_.verify) verify(batch);
    }
  }

  // One micro-batch of whole sequences of their own: forward, loss and backward; on several ranks an update.
  void train() {
    std::vector<TrainingSample> samples;
    RolloutBatch batch;
    for (const PromptPtr& prompt : random_prompts(arguments_, vocab(), 7)) {
      Philox random(11, prompt->id);
      for (int64_t s = 0; s < arguments_.samples; ++s) {
        auto t = std::make_shared<Trajectory>();
        t->prompt = prompt, t->sample_index = static_cast<uint32_t>(s), t->temperature = 1;
        for (int64_t i = 0; i < arguments_.new_tokens; ++i)
          t->response_ids.push_back(static_cast<TokenId>(random.below(static_cast<uint64_t>(vocab()))));
        t->rollout_logprobs.assign(t->response_ids.size(), -12.0f);
        samples.push_back({t, s % 2 == 0 ? 1.0 : -1.0, {}});
        Sample& sample = batch.emplace_back();
        sample.prompt_id = prompt->id, sample.sample_index = t->sample_index,
        sample.advantage = samples.back().advantage;
        sample.handle = store_->put(t);
      }
    }
    if (arguments_.ranks > 1) return update(batch);
    const EngineOptions options = engine_options(arguments_);
    Optimizer unused(engine_->decoder().weights(), {});
    moments_gib_ = 8.0 * static_cast<double>(count_parameters(engine_->decoder().weights()).trained) / kGiB;
    const Trainer trainer(engine_->decoder(), unused, options.trainer);
    DecoderWeights gradients = zeros_of_trained(engine_->decoder().weights());
    const int64_t tokens = arguments_.prompts * arguments_.samples * (arguments_.prompt_tokens + arguments_.new_tokens);
    for (int64_t i = 0; i < arguments_.repeats; ++i) {
      UpdateStats stats;
      const double seconds = seconds_of([&] {
        stats = trainer.accumulate(samples, gradients);
        kernels::synchronize(gradients.final_norm_E);
      });
      report("train", seconds, tokens);
      best_training_ = std::min(best_training_, seconds);
    }
  }

  void step() {
    std::vector<double> rollouts, updates;
    for (int64_t i = 0; i < arguments_.repeats; ++i) {
      const auto prompts = random_prompts(arguments_, vocab(), static_cast<uint64_t>(i + 1));
      RolloutBatch batch;
      first_pass_.reset();
      const auto start = Clock::now();
      const double generate = seconds_of([&] { batch = engine_->generate(prompts); });
      // The switch: from the verb to the first pass, and from the last pass to the verb's end, memory changing hands.
      const double to_rollout = std::chrono::duration<double>(*first_pass_ - start).count();
      const double from_rollout = generate - std::chrono::duration<double>(last_pass_ - start).count();
      for (size_t s = 0; s < batch.size(); ++s) batch[s].reward = static_cast<double>(s % 3);
      ScoredBatch scored{std::move(batch), {}};
      estimate_advantages(scored, {});
      batch = std::move(scored.samples);
      const double update = seconds_of([&] { engine_->update_policy(batch); });
      const int64_t tokens = arguments_.prompts * arguments_.samples * arguments_.new_tokens;
      fmt::print(R"({{"name": "step", "seconds": {:.3f}, "rollout": {:.3f}, "update": {:.3f}, "tokens": {}, )"
                 R"("to_rollout_ms": {:.2f}, "from_rollout_ms": {:.2f}}})"
                 "\n",
                 generate + update, generate, update, tokens, to_rollout * 1e3, from_rollout * 1e3);
      std::fflush(stdout);
      best_step_ = std::min(best_step_, generate + update);
      if (i > 0) rollouts.push_back(generate), updates.push_back(update);  // the first one warms up
    }
    if (!rollouts.empty()) summarise(rollouts, updates);
  }

  // What a copy of the state takes of a step where copies are made as often as by default; files are written beside.
  void save() {
    step();
    constexpr double kEvery = 100;  // trainer.checkpoint.memory_freq; saves to disk by default fall on the same steps
    ModelStateCopy copy;
    const double first = seconds_of([&] { engine_->copy_state(copy); });
    std::vector<double> times;
    for (int64_t i = 0; i < std::max<int64_t>(3, arguments_.repeats); ++i)
      times.push_back(seconds_of([&] { engine_->copy_state(copy); }));
    std::ranges::sort(times);
    const double seconds = times[times.size() / 2], restored = seconds_of([&] { engine_->restore(copy); });
    const double gigabytes = static_cast<double>(engine_->state_bytes()) / 1e9;
    fmt::print(R"({{"name": "save", "gigabytes": {:.3f}, "first_copy_seconds": {:.4f}, "copy_seconds": {:.4f}, )"
               R"("gb_per_second": {:.2f}, "restore_seconds": {:.4f}, "step_seconds": {:.3f}, )"
               R"("share_of_steps": {:.6f}}})"
               "\n",
               gigabytes, first, seconds, gigabytes / seconds, restored, best_step_, seconds / kEvery / best_step_);
  }

  // The device's log-probs and gradient of one mini-batch against the CPU's in fp32, from the same rounded weights.
  void compare() const {
    const Decoder& decoder = engine_->decoder();
    const auto cpu = at::device(at::kCPU).dtype(at::kFloat);
    Decoder reference(decoder.config(), converted(decoder.weights(), cpu),
                      arguments_.prompt_tokens + arguments_.new_tokens);
    const auto mine = logprobs_and_gradient(engine_->decoder()), wanted = logprobs_and_gradient(reference);
    double largest = 0, squares = 0;
    int64_t count = 0;
    for (size_t i = 0; i < wanted.logprobs.size(); ++i)
      for (size_t t = 0; t < wanted.logprobs[i].size(); ++t, ++count) {
        const double d = mine.logprobs[i][t] - wanted.logprobs[i][t];
        largest = std::max(largest, std::abs(d)), squares += d * d;
      }
    fmt::print(R"({{"name": "logprobs", "count": {}, "rms_difference": {:.3g}, "largest": {:.3g}}})"
               "\n",
               count, std::sqrt(squares / static_cast<double>(count)), largest);
    const auto got = parameters(mine.gradient), want = parameters(wanted.gradient);
    double difference = 0, norm = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      const at::Tensor host = got[i].tensor.to(cpu);
      const auto g = values(host), w = values(want[i].tensor);
      double d = 0, n = 0;
      for (size_t j = 0; j < w.size(); ++j) {
        const double off = double{g[j]} - w[j];
        d += off * off, n += double{w[j]} * w[j];
      }
      difference += d, norm += n;
      if (want[i].name.find("layers.0.") == 0 || want[i].name.find("layers") != 0)
        fmt::print(R"({{"name": "gradient of {}", "relative_difference": {:.3g}, "norm": {:.3g}}})"
                   "\n",
                   want[i].name, std::sqrt(d / n), std::sqrt(n));
    }
    fmt::print(R"({{"name": "gradient", "relative_difference": {:.3g}}})"
               "\n",
               std::sqrt(difference / norm));
  }

  void memory() const {
    const auto m = kernels::device_memory(engine_->decoder().weights().embed_VE);
    if (!engine_->decoder().on_device()) return;
    fmt::print(R"({{"name": "memory", "peak_allocated_gib": {:.2f}, "peak_reserved_gib": {:.2f}, )"
               R"("allocated_gib": {:.2f}, "reserved_gib": {:.2f}, "moments_gib": {:.2f}}})"
               "\n",
               m.peak_allocated / kGiB, m.peak_reserved / kGiB, m.allocated / kGiB, m.reserved / kGiB, moments_gib_);
  }

  // The figures beside the floor of a device whose ceilings are measured now.
  void roofline() const {
    // The floor counts every response at its full length.
    if (!engine_->decoder().on_device() || arguments_.ranks > 1 || arguments_.ragged) return;
    const Ceilings best = measure_ceilings(engine_->decoder().weights().embed_VE);
    print(best);
    const ModelConfig& config = engine_->decoder().config();
    const SampledWork work{arguments_.prompts, arguments_.samples, arguments_.prompt_tokens, arguments_.new_tokens};
    const auto line = [](const char* name, double floor, double seconds) {
      if (std::isfinite(seconds))
        fmt::print(R"({{"name": "roofline", "of": "{}", "floor_seconds": {:.3f}, "fraction": {:.3f}}})"
                   "\n",
                   name, floor, floor / seconds);
    };
    line("rollout", rollout_floor_seconds(config, work, engine_->decoder().value_bytes(), best), best_rollout_);
    line("train", training_floor_seconds(config, work, best), best_training_);
  }

 private:
  static constexpr double kGiB = 1024.0 * 1024 * 1024;

  struct Passes {
    std::vector<std::vector<float>> logprobs;
    DecoderWeights gradient;
  };

  Passes logprobs_and_gradient(Decoder& decoder) const {
    std::vector<std::shared_ptr<Trajectory>> trajectories;
    std::vector<PackItem> items;
    for (const PromptPtr& prompt : random_prompts(arguments_, vocab(), 7)) {
      Philox random(11, prompt->id);
      for (int64_t s = 0; s < arguments_.samples; ++s) {
        auto& t = trajectories.emplace_back(std::make_shared<Trajectory>());
        t->prompt = prompt, t->sample_index = static_cast<uint32_t>(s), t->temperature = 1;
        const int64_t length = arguments_.new_tokens - s % std::min<int64_t>(7, arguments_.new_tokens);
        for (int64_t i = 0; i < length; ++i)
          t->response_ids.push_back(static_cast<TokenId>(random.below(static_cast<uint64_t>(vocab()))));
        items.push_back({prompt->token_ids, t->response_ids});
      }
    }
    const std::vector<double> temperatures(items.size(), 1.0);
    Passes out{packed_logprobs(decoder, items, temperatures, arguments_.micro_tokens),
               zeros_of_trained(decoder.weights())};
    std::vector<TrainingSample> samples;
    for (size_t i = 0; i < trajectories.size(); ++i) {
      trajectories[i]->rollout_logprobs = out.logprobs[i];
      samples.push_back({trajectories[i], i % 3 == 0 ? 1.0 : -0.5, {}});
    }
    Optimizer unused(decoder.weights(), {});
    Trainer(decoder, unused, engine_options(arguments_).trainer).accumulate(samples, out.gradient);
    return out;
  }

  void update(const RolloutBatch& batch) {
    const int64_t tokens = arguments_.prompts * arguments_.samples * (arguments_.prompt_tokens + arguments_.new_tokens);
    for (int64_t i = 0; i < arguments_.repeats; ++i)
      report("train", seconds_of([&] { engine_->update_policy(batch); }), tokens);
  }

  void summarise(const std::vector<double>& rollouts, const std::vector<double>& updates) const {
    const auto n = static_cast<double>(rollouts.size());
    double sum = 0, squares = 0, rollout = 0;
    for (size_t i = 0; i < rollouts.size(); ++i) {
      const double step = rollouts[i] + updates[i];
      sum += step, squares += step * step, rollout += rollouts[i];
    }
    const double mean = sum / n;
    fmt::print(R"({{"name": "steps", "ranks": {}, "steps": {}, "mean_seconds": {:.3f}, "rollout": {:.3f}, )"
               R"("update": {:.3f}, "jitter": {:.4f}}})"
               "\n",
               std::max(1, arguments_.ranks), rollouts.size(), mean, rollout / n, mean - rollout / n,
               std::sqrt(std::max(0.0, squares / n - mean * mean)) / mean);
  }

  int64_t vocab() const { return engine_->decoder().config().vocab_size; }

  void report(const char* name, double seconds, int64_t tokens) const {
    fmt::print(R"({{"name": "{}", "seconds": {:.4f}, "tokens": {}, "tokens_per_second": {:.1f}}})"
               "\n",
               name, seconds, tokens, static_cast<double>(tokens) / seconds);
    std::fflush(stdout);
  }

  // The training forward's log-probs against those that rollout drew by, bit for bit.
  void verify(const RolloutBatch& batch) const {
    std::vector<TrajectoryPtr> trajectories;
    std::vector<PackItem> items;
    for (const Sample& sample : batch) {
      const TrajectoryPtr& t = trajectories.emplace_back(store_->get(sample.handle));
      items.push_back({t->prompt->token_ids, t->response_ids});
    }
    const std::vector<double> temperatures(items.size(), 1.0);
    const auto logprobs = packed_logprobs(engine_->decoder(), items, temperatures, arguments_.micro_tokens);
    int64_t compared = 0, different = 0;
    double largest = 0;
    for (size_t i = 0; i < items.size(); ++i)
      for (size_t t = 0; t < logprobs[i].size(); ++t, ++compared) {
        const float a = logprobs[i][t], b = trajectories[i]->rollout_logprobs[t];
        different += std::memcmp(&a, &b, sizeof a) != 0;
        largest = std::max(largest, static_cast<double>(std::abs(a - b)));
      }
    fmt::print(R"({{"name": "exact", "compared": {}, "different": {}, "largest_difference": {:.3g}}})"
               "\n",
               compared, different, largest);
    std::fflush(stdout);
  }

  BenchArguments arguments_;
  std::optional<Clock::time_point> first_pass_;
  Clock::time_point last_pass_;
  double moments_gib_ = 0;  // held beside a micro-batch that does not use them
  double best_rollout_ = std::numeric_limits<double>::infinity(), best_training_ = best_rollout_;
  double best_step_ = best_rollout_;
  std::shared_ptr<TrajectoryStore> store_;
  std::unique_ptr<Engine> engine_;
};

void run_bench(Bench& bench, const BenchArguments& arguments) {
  if (arguments.what == "rollout") bench.rollout();
  if (arguments.what == "train") bench.train();
  if (arguments.what == "step") bench.step();
  if (arguments.what == "save") bench.save();
  if (arguments.what == "compare") bench.compare();
  bench.memory();
  bench.roofline();
}

}  // namespace

void bench_engine(const BenchArguments& arguments, std::shared_ptr<Team> team) {
  print_setup(arguments);
  Bench bench(arguments);
  if (team) bench.engine().join_team(std::move(team));
  run_bench(bench, arguments);
}

void follow_bench(const BenchArguments& arguments, std::shared_ptr<Team> team) {
  Bench bench(arguments);
  bench.engine().join_team(std::move(team));
  bench.engine().follow();
}

}  // namespace tandem
