// tandem bench: times rollout, a micro-batch and a whole GRPO step on random weights of a config.json's shape.
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>
#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "app/bench_ranks.h"
#include "app/bench_reshard.h"
#include "app/command.h"
#include "app/ranks.h"
#include "app/roofline.h"
#include "base/rng.h"
#include "engine/engine.h"
#include "kernels/device_ops.h"
#include "programs/advantage.h"

namespace tandem {
namespace {

struct BenchArguments {
  std::string what, model, device = "cpu";
  int64_t prompts = 16, samples = 8, prompt_tokens = 128, new_tokens = 64, repeats = 1, micro_tokens = 32768;
  int64_t kv_cache_mb = 2048, batched_tokens = 16384, activation_mb = 65536, threads = 0;
  int ranks = 0, replicas = 1, timeout = 600;
  bool verify = false, weak = false;
  RankAddress address;

  Layout layout() const { return {.dp_replicate = replicas, .dp_shard = std::max(1, ranks) / replicas}; }
  bool leads() const { return address.rank == 0; }
};

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
    for (int64_t t = 0; t < a.prompt_tokens; ++t)
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
  o.num_samples = a.samples;
  o.trainer.mini_batch_samples = a.prompts * a.samples;
  o.trainer.max_micro_tokens = a.micro_tokens;
  o.trainer.activation_bytes = a.activation_mb << 20;
  return o;
}

// What another rank is started with, to have the same arguments.
std::vector<std::string> words_of(const BenchArguments& a) {
  std::vector<std::string> words{"bench", a.what, a.model, "--device", a.device};
  const auto add = [&](const char* name, int64_t value) { words.insert(words.end(), {name, std::to_string(value)}); };
  add("--prompts", a.prompts), add("--samples", a.samples), add("--prompt-tokens", a.prompt_tokens);
  add("--new-tokens", a.new_tokens), add("--repeats", a.repeats), add("--micro-tokens", a.micro_tokens);
  add("--kv-cache-mb", a.kv_cache_mb), add("--batched-tokens", a.batched_tokens);
  add("--activation-mb", a.activation_mb), add("--threads", a.threads), add("--ranks", a.ranks);
  add("--replicas", a.replicas), add("--timeout", a.timeout);
  return words;
}

// What the planner (tandem simulate --calibrate) needs beside the times.
void print_setup(const BenchArguments& a) {
  const nlohmann::ordered_json line{{"name", "setup"},
                                    {"model", std::filesystem::absolute(a.model).string()},
                                    {"device", a.device},
                                    {"threads", a.threads},
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
      report("rollout", seconds, arguments_.prompts * arguments_.samples * arguments_.new_tokens);
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
      if (i > 0) rollouts.push_back(generate), updates.push_back(update);  // the first one warms up
    }
    if (!rollouts.empty()) summarise(rollouts, updates);
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
    if (!engine_->decoder().on_device() || arguments_.ranks > 1) return;
    const Ceilings best = ceilings();
    fmt::print(R"({{"name": "ceilings", "copy_tb_s": {:.3f}, "matmul_tflop_s": {:.0f}}})"
               "\n",
               best.bytes_per_second / 1e12, best.flops_per_second / 1e12);
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

  // What the device can do at best: bytes read and written by a large copy, and a large bf16 product.
  Ceilings ceilings() const {
    const auto options = engine_->decoder().weights().embed_VE.options();
    const auto best_of = [&](const at::Tensor& like, auto run) {
      double best = 1e9;
      for (int i = 0; i < 8; ++i) {
        kernels::synchronize(like);
        best = std::min(best, seconds_of([&] { run(), kernels::synchronize(like); }));
      }
      return best;
    };
    at::Tensor from = at::empty({int64_t{1} << 30}, options), to = at::empty_like(from);
    from.normal_();
    const double copy = best_of(from, [&] { to.copy_(from); });
    const int64_t n = 8192;
    at::Tensor a = at::empty({n, n}, options).normal_(), b = at::empty({n, n}, options).normal_(),
               c = at::empty_like(a);
    const double product = best_of(a, [&] { at::mm_out(c, a, b); });
    return {static_cast<double>(2 * from.nbytes()) / copy, 2.0 * n * n * n / product};
  }

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
  std::shared_ptr<TrajectoryStore> store_;
  std::unique_ptr<Engine> engine_;
};

void run_bench(Bench& bench, const BenchArguments& arguments) {
  if (arguments.what == "rollout") bench.rollout();
  if (arguments.what == "train") bench.train();
  if (arguments.what == "step") bench.step();
  if (arguments.what == "compare") bench.compare();
  bench.memory();
  bench.roofline();
}

// Of the words that all ranks carry out alike, without an engine.
bool on_all_ranks(const std::string& what) {
  return what == "reshard" || what == "ranks" || what == "dead-rank" || what == "hanging-rank";
}

bool run_alike(const BenchArguments& a, Team& team) {
  const at::Device device(a.device);
  Communicator& world = team.work();
  if (a.what == "dead-rank" || a.what == "hanging-rank") return check_failure(world, device, a.what == "hanging-rank");
  if (a.what == "reshard") measure_switch(world, a.model, device, a.repeats);
  return a.what == "reshard" || check_ranks(world, device);
}

int run_on_ranks(const BenchArguments& a) {
  if (a.what == "compare") throw ConfigError("compare runs on one rank: leave --ranks out");
  if (a.replicas < 1 || a.ranks % a.replicas != 0) throw ConfigError("--replicas must divide --ranks");
  const RankPlan plan{a.layout(), std::chrono::seconds(a.timeout), a.device != "cpu"};
  if (plan.gpus) {
    kernels::choose_device(a.device);
    if (a.leads() && a.ranks > kernels::num_gpus())
      throw ConfigError(fmt::format("--ranks {}: this machine shows {} GPUs", a.ranks, kernels::num_gpus()));
  }
  if (!a.leads())
    return follow_ranks(plan, a.address, [&](std::shared_ptr<Team> team, int64_t) {
      if (on_all_ranks(a.what)) return static_cast<void>(run_alike(a, *team));
      Bench bench(a);
      bench.engine().join_team(std::move(team));
      bench.engine().follow();
    });
  const auto runtime = local_processes({});
  RankGroup processes(plan, words_of(a), *runtime);
  if (on_all_ranks(a.what)) return run_alike(a, *processes.team()) ? 0 : 1;
  print_setup(a);
  Bench bench(a);
  bench.engine().join_team(processes.team());
  run_bench(bench, a);
  return 0;
}

int run(BenchArguments a) {
  if (a.what == "reshard" && a.device == "cpu") return bench_reshard(a.model, a.ranks == 0 ? 8 : a.ranks);
  a.ranks = std::max(1, a.ranks);
  if (a.weak) a.prompts *= a.ranks, a.weak = false;
  const int64_t cores = static_cast<int64_t>(std::thread::hardware_concurrency());
  set_num_threads(a.ranks == 1 ? a.threads : std::max<int64_t>(1, (a.threads > 0 ? a.threads : cores) / a.ranks));
  if (a.ranks > 1) return run_on_ranks(a);
  if (on_all_ranks(a.what)) throw ConfigError(a.what + " wants several ranks: --ranks N");
  print_setup(a);
  Bench bench(a);
  run_bench(bench, a);
  return 0;
}

}  // namespace

void add_bench(CLI::App& app, Action& action) {
  auto* command = app.add_subcommand("bench", "time the engine on random weights; prints JSON");
  auto a = std::make_shared<BenchArguments>();
  command->add_option("what", a->what)
      ->required()
      ->check(CLI::IsMember({"rollout", "train", "step", "compare", "reshard", "ranks", "dead-rank", "hanging-rank"}));
  command->add_option("model", a->model, "a folder with a config.json")->required();
  command->add_option("--device", a->device, "cpu or cuda")
      ->check(CLI::IsMember({"cpu", "cuda"}))
      ->capture_default_str();
  command->add_option("--prompts", a->prompts)->capture_default_str();
  command->add_option("--samples", a->samples, "responses a prompt")->capture_default_str();
  command->add_option("--prompt-tokens", a->prompt_tokens)->capture_default_str();
  command->add_option("--new-tokens", a->new_tokens, "tokens of each response")->capture_default_str();
  command->add_option("--repeats", a->repeats)->capture_default_str();
  command->add_option("--micro-tokens", a->micro_tokens, "tokens of a training micro-batch")->capture_default_str();
  command->add_option("--kv-cache-mb", a->kv_cache_mb)->capture_default_str();
  command->add_option("--batched-tokens", a->batched_tokens, "tokens of a rollout pass")->capture_default_str();
  command->add_option("--activation-mb", a->activation_mb)->capture_default_str();
  command->add_option("--ranks", a->ranks, "processes, each with a GPU of its own; reshard on the CPU: of the layouts");
  command->add_option("--replicas", a->replicas, "groups of ranks that have whole weights each")->capture_default_str();
  command->add_flag("--weak", a->weak, "--prompts counts for each rank");
  command->add_option("--timeout", a->timeout, "seconds that a rank waits for another")->capture_default_str();
  command->add_option("--rank", a->address.rank)->group("");
  command->add_option("--port", a->address.port)->group("");
  command->add_option("--threads", a->threads, "0: one a core")->capture_default_str();
  command->add_flag("--verify", a->verify, "compare rollout's log-probs with the training forward's, bit for bit");
  command->callback([&action, a] { action = [a] { return run(*a); }; });
}

}  // namespace tandem
