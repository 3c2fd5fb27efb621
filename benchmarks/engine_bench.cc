// Rollout, gradient and whole GRPO step of a real model on the work that benchmarks/peers does: the same chats, exact
// response lengths, rewards that differ within every group. One JSON object a line.
#include <fmt/format.h>
#include <omp.h>
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <array>
#include <chrono>
#include <cstdio>

#include "engine/engine.h"
#include "programs/advantage.h"
#include "text/chat_template.h"

namespace tandem {
namespace {

using Clock = std::chrono::steady_clock;

struct Work {
  std::string model, shape = "chat", what = "all";
  int64_t prompts = 8, samples = 8, new_tokens = 64, activation_mb = 64;
  int threads = 2;
};

constexpr std::array kQuestions = {"Why is the sky blue?",        "Name three kinds of trees.",
                                   "How do bees make honey?",     "What is a prime number?",
                                   "Who wrote Romeo and Juliet?", "How far away is the moon?",
                                   "What causes the tides?",      "Describe a good breakfast."};

std::vector<ChatMessage> chat(const std::string& shape, int64_t i) {
  if (shape == "chat") return {{"user", kQuestions[static_cast<size_t>(i) % kQuestions.size()]}};
  return {{"system", "Add."}, {"user", "1+1"},    {"assistant", "2"},
          {"user", "5+3"},    {"assistant", "8"}, {"user", fmt::format("{}+{}", 1 + i % 9, 1 + (i * 4) % 9)}};
}

std::vector<PromptPtr> make_prompts(const Work& work, const Tokenizer& tokenizer) {
  const ChatTemplate chats = ChatTemplate::from_folder(work.model);
  std::vector<PromptPtr> prompts;
  for (int64_t i = 0; i < work.prompts; ++i) {
    auto prompt = std::make_shared<Prompt>();
    prompt->id = static_cast<uint64_t>(i);
    prompt->token_ids = chats.encode_chat(tokenizer, chat(work.shape, i));
    prompts.push_back(prompt);
  }
  return prompts;
}

EngineOptions options_for(const Work& work) {
  EngineOptions options;
  options.model_path = work.model;
  options.max_model_len = 128 + work.new_tokens;
  options.sampling.max_tokens = work.new_tokens;
  options.sampling.ignore_eos = true;
  options.validation_sampling = options.sampling;
  options.num_samples = work.samples;
  options.trainer.mini_batch_samples = work.prompts * work.samples;
  options.trainer.activation_bytes = work.activation_mb << 20;
  return options;
}

double seconds_of(const std::function<void()>& run) {
  const auto start = Clock::now();
  run();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void report(const std::string& name, const Work& work, double seconds, int64_t tokens) {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  fmt::print(R"({{"name": "{}", "shape": "{}", "seconds": {:.2f}, "tokens": {}, "tokens_per_second": {:.1f}, )"
             R"("peak_rss_gb": {:.2f}}})"
             "\n",
             name, work.shape, seconds, tokens, static_cast<double>(tokens) / seconds,
             static_cast<double>(usage.ru_maxrss) * 1024 / 1e9);
  std::fflush(stdout);
}

void run(const Work& work) {
  omp_set_num_threads(work.threads);
  const Tokenizer tokenizer = Tokenizer::from_folder(work.model);
  const auto prompts = make_prompts(work, tokenizer);
  const auto store = std::make_shared<TrajectoryStore>();
  Engine engine(options_for(work), &tokenizer, store);
  const auto rewarded = [&](RolloutBatch batch) {
    for (size_t i = 0; i < batch.size(); ++i) batch[i].reward = static_cast<double>(i % 3);
    ScoredBatch scored{batch, {}};
    estimate_advantages(scored, {});
    batch = scored.samples;
    return batch;
  };
  int64_t new_tokens = work.prompts * work.samples * work.new_tokens, all_tokens = new_tokens;
  for (const auto& prompt : prompts) all_tokens += work.samples * static_cast<int64_t>(prompt->token_ids.size());

  RolloutBatch batch;
  if (work.what != "step") {
    const double seconds = seconds_of([&] { batch = rewarded(engine.generate(prompts)); });
    report("rollout", work, seconds, new_tokens);
    if (work.what == "rollout") return;
    std::vector<TrainingSample> samples;
    for (const Sample& sample : batch) samples.push_back({store->get(sample.handle), sample.advantage, {}});
    Optimizer unused(engine.decoder().weights(), {});
    const Trainer trainer(engine.decoder(), unused, options_for(work).trainer);
    DecoderWeights gradients = zeros_of_trained(engine.decoder().weights());
    report("train", work, seconds_of([&] { trainer.accumulate(samples, gradients); }), all_tokens);
  }
  if (work.what != "parts")
    report("step", work, seconds_of([&] { engine.update_policy(rewarded(engine.generate(prompts))); }), new_tokens);
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  tandem::Work work;
  CLI::App app("times rollout, gradient and GRPO step");
  app.add_option("--model", work.model)->required();
  app.add_option("--shape", work.shape)->check(CLI::IsMember({"chat", "addition"}))->capture_default_str();
  app.add_option("--what", work.what, "step alone shows a run's own peak memory")
      ->check(CLI::IsMember({"all", "parts", "rollout", "step"}))
      ->capture_default_str();
  app.add_option("--prompts", work.prompts)->capture_default_str();
  app.add_option("--samples", work.samples)->capture_default_str();
  app.add_option("--new-tokens", work.new_tokens)->capture_default_str();
  app.add_option("--activation-mb", work.activation_mb, "of a training pass")->capture_default_str();
  app.add_option("--threads", work.threads)->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  tandem::run(work);
}
