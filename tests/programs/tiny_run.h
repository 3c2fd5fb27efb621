// Every role on a bigram model: after 'A' the letters x and y are equally likely, after 'B' only x; then the end. The
// reward is 1 for x.
#pragma once

#include <future>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "checkpoint/scratch_folder.h"
#include "programs/program.h"
#include "support/bigram.h"

namespace tandem {

class OneForX final : public RewardFunction {
 public:
  std::future<RewardResult> submit(RewardRequest request) override {
    const double x = request.solution_str.starts_with('x') ? 1 : 0;
    std::promise<RewardResult> result;
    result.set_value({x, {{"x", x}, {"length", static_cast<double>(request.solution_str.size())}}});
    return result.get_future();
  }
};

struct TinyRun {
  explicit TinyRun(ProgramOptions options = {}, EngineOptions engine = {},
                   std::optional<TokenAdvantageOptions> tokens = {}, bool with_critic = false,
                   double letter_logit = 0) {
    BigramTable table;
    const auto logit = static_cast<float>(letter_logit);
    table.rows['A'] = {{'x', 0.F}, {'y', logit}};
    table.rows['B'] = {{'x', 0.F}};
    table.rows['x'] = {{'!', 0.F}}, table.rows['y'] = {{'?', 0.F}};
    write_bigram_model(folder.path(), table);
    tokenizer = std::make_unique<Tokenizer>(Tokenizer::from_folder(folder.path()));
    engine.model_path = folder.path();
    engine.max_model_len = 32, engine.kv_cache_bytes = 8 << 20;
    engine.sampling.max_tokens = 3, engine.sampling.eos_ids = {kBigramImEnd};
    engine.validation_sampling = engine.sampling;
    if (engine.num_samples == 1) engine.num_samples = 4;
    engine.trainer.mini_batch_samples = 64;
    actor = single(std::make_shared<Engine>(engine, tokenizer.get(), store));
    reward = single(std::make_shared<RewardWorker>(std::make_unique<OneForX>(), store, *tokenizer, OverlongOptions{}));
    ReferenceOptions reference_options;
    reference_options.model_path = folder.path(), reference_options.max_model_len = 32;
    reference = single(std::make_shared<Reference>(reference_options, store));
    if (tokens) advantages = single(std::make_shared<TokenAdvantages>(*tokens, KlType{}, store));
    if (with_critic) {
      CriticOptions critic_options;
      critic_options.model_path = folder.path(), critic_options.max_model_len = 32;
      critic_options.trainer.mini_batch_samples = 64;
      critic_options.optimizer.lr = 3e-3, critic_options.optimizer.weight_decay = 0;
      critic = single(std::make_shared<Critic>(critic_options, store));
    }
    if (options.collect.prompts_per_step == 0) options.collect.prompts_per_step = 4;
    program = make_program(options, {*actor, *reward, reference.get(), advantages.get(), critic.get()});
  }

  template <class Worker>
  static std::unique_ptr<WorkerGroup<Worker>> single(std::shared_ptr<Worker> worker) {
    return std::make_unique<WorkerGroup<Worker>>(std::vector<std::shared_ptr<Worker>>{std::move(worker)});
  }

  // Prompts ending in the letters of `pattern`, again and again, with ids that go on; `wrap`: ids start again there.
  PromptSource source(std::string pattern, uint64_t wrap = UINT64_MAX) {
    return [this, pattern, wrap](size_t count) {
      PromptList prompts;
      for (size_t i = 0; i < count; ++i, ++given) {
        auto prompt = std::make_shared<Prompt>();
        prompt->id = given % wrap;
        prompt->token_ids = {'q', static_cast<TokenId>(pattern[prompt->id % pattern.size()])};
        prompts.push_back(prompt);
      }
      return prompts;
    };
  }

  StepResult step(const std::string& pattern) { return program->step(source(pattern), steps_done++); }

  double probability_of_y() {  // by what the model draws
    PromptSource prompts = source("A");
    double y = 0;
    const RolloutBatch batch = actor->worker(0).generate(prompts(16));
    for (const Sample& sample : batch) y += store->get(sample.handle)->response_ids[0] == 'y' ? 1 : 0;
    return y / static_cast<double>(batch.size());
  }

  ScratchFolder folder;
  int64_t steps_done = 0;
  std::shared_ptr<TrajectoryStore> store = std::make_shared<TrajectoryStore>();
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<WorkerGroup<Engine>> actor;
  std::unique_ptr<WorkerGroup<RewardWorker>> reward;
  std::unique_ptr<WorkerGroup<Reference>> reference;
  std::unique_ptr<WorkerGroup<TokenAdvantages>> advantages;
  std::unique_ptr<WorkerGroup<Critic>> critic;
  std::unique_ptr<Program> program;
  uint64_t given = 0;
};

}  // namespace tandem
