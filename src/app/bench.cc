// tandem bench: times rollout, a micro-batch and a whole GRPO step on random weights of a config.json's shape.
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "app/bench_reshard.h"
#include "app/command.h"
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
  int ranks = 8;
  bool verify = false;
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
      engine_ = std::make_unique<Engine>(engine_options(a), std::move(decoder), nullptr, store_);
    });
    fmt::print(R"({{"name": "start", "seconds": {:.2f}}})"
               "\n",
               seconds);
  }

  void rollout() {
    for (int64_t i = 0; i < arguments_.repeats; ++i) {
      const auto prompts = random_prompts(arguments_, vocab(), static_cast<uint64_t>(i + 1));
      RolloutBatch batch;
      const double seconds = seconds_of([&] { batch = engine_->generate(prompts); });
      report("rollout", seconds, arguments_.prompts * arguments_.samples * arguments_.new_tokens);
      if (arguments_.verify) verify(batch);
    }
  }

  // One micro-batch of whole sequences of their own: forward, loss and backward.
  void train() {
    std::vector<TrainingSample> samples;
    for (const PromptPtr& prompt : random_prompts(arguments_, vocab(), 7)) {
      Philox random(11, prompt->id);
      for (int64_t s = 0; s < arguments_.samples; ++s) {
        auto t = std::make_shared<Trajectory>();
        t->prompt = prompt, t->sample_index = static_cast<uint32_t>(s), t->temperature = 1;
        for (int64_t i = 0; i < arguments_.new_tokens; ++i)
          t->response_ids.push_back(static_cast<TokenId>(random.below(static_cast<uint64_t>(vocab()))));
        t->rollout_logprobs.assign(t->response_ids.size(), -12.0f);
        samples.push_back({t, s % 2 == 0 ? 1.0 : -1.0, {}});
      }
    }
    const EngineOptions options = engine_options(arguments_);
    Optimizer unused(engine_->decoder().weights(), {});
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
    }
  }

  void step() {
    for (int64_t i = 0; i < arguments_.repeats; ++i) {
      const auto prompts = random_prompts(arguments_, vocab(), static_cast<uint64_t>(i + 1));
      RolloutBatch batch;
      const double generate = seconds_of([&] { batch = engine_->generate(prompts); });
      for (size_t s = 0; s < batch.size(); ++s) batch[s].reward = static_cast<double>(s % 3);
      ScoredBatch scored{std::move(batch), {}};
      estimate_advantages(scored, {});
      batch = std::move(scored.samples);
      const double update = seconds_of([&] { engine_->update_policy(batch); });
      const int64_t tokens = arguments_.prompts * arguments_.samples * arguments_.new_tokens;
      fmt::print(R"({{"name": "step", "seconds": {:.3f}, "rollout": {:.3f}, "update": {:.3f}, "tokens": {}}})"
                 "\n",
                 generate + update, generate, update, tokens);
      std::fflush(stdout);
    }
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
    fmt::print(R"({{"name": "memory", "peak_allocated_gib": {:.2f}, "peak_reserved_gib": {:.2f}, )"
               R"("allocated_gib": {:.2f}, "reserved_gib": {:.2f}}})"
               "\n",
               m.peak_allocated / kGiB, m.peak_reserved / kGiB, m.allocated / kGiB, m.reserved / kGiB);
  }

 private:
  static constexpr double kGiB = 1024.0 * 1024 * 1024;

  // What the device can do at best: bytes read and written by a large copy, and a large bf16 product.
  void ceilings() const {
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
    fmt::print(R"({{"name": "ceilings", "copy_tb_s": {:.3f}, "matmul_tflop_s": {:.0f}}})"
               "\n",
               static_cast<double>(2 * from.nbytes()) / copy / 1e12, 2.0 * n * n * n / product / 1e12);
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
  std::shared_ptr<TrajectoryStore> store_;
  std::unique_ptr<Engine> engine_;
};

int run(const BenchArguments& arguments) {
  if (arguments.what == "reshard") return bench_reshard(arguments.model, arguments.ranks);
  set_num_threads(arguments.threads);
  print_setup(arguments);
  Bench bench(arguments);
  if (arguments.what == "rollout") bench.rollout();
  if (arguments.what == "train") bench.train();
  if (arguments.what == "step") bench.step();
  if (arguments.what == "compare") bench.compare();
  bench.memory();
  return 0;
}

}  // namespace

void add_bench(CLI::App& app, Action& action) {
  auto* command = app.add_subcommand("bench", "time the engine on random weights; prints JSON");
  auto a = std::make_shared<BenchArguments>();
  command->add_option("what", a->what)
      ->required()
      ->check(CLI::IsMember({"rollout", "train", "step", "compare", "reshard"}));
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
  command->add_option("--ranks", a->ranks, "reshard: ranks of the layouts")->capture_default_str();
  command->add_option("--threads", a->threads, "0: one a core")->capture_default_str();
  command->add_flag("--verify", a->verify, "compare rollout's log-probs with the training forward's, bit for bit");
  command->callback([&action, a] { action = [a] { return run(*a); }; });
}

}  // namespace tandem
