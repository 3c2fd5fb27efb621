// What the three dataflows share: prompts, a reward, and how to make the roles. A dataflow itself is in its own file.
#pragma once

#include <iostream>
#include <string>

#include "programs/advantage.h"
#include "programs/program.h"

namespace dataflow {

using namespace tandem;

// Digits please: the share of digits in the response.
class DigitsReward final : public RewardFunction {
 public:
  std::future<RewardResult> submit(RewardRequest request) override {
    double digits = 0;
    for (const char c : request.solution_str) digits += c >= '0' && c <= '9' ? 1 : 0;
    std::promise<RewardResult> result;
    result.set_value({digits / static_cast<double>(std::max<size_t>(1, request.solution_str.size())), {}});
    return result.get_future();
  }
};

struct Setup {
  explicit Setup(std::filesystem::path folder)
      : model(std::move(folder)), tokenizer(Tokenizer::from_folder(model)), store(std::make_shared<TrajectoryStore>()) {
    options.model_path = model;
    options.max_model_len = 64;
    options.num_samples = 4;
    options.sampling.max_tokens = 8;
    options.sampling.eos_ids = read_special_ids(model).eos;
    options.trainer.mini_batch_samples = 16;
    options.optimizer.lr = 1e-3;
  }

  WorkerGroup<Engine> actor() const { return group<Engine>(options, &tokenizer, store); }
  WorkerGroup<RewardWorker> reward() const {
    return group<RewardWorker>(std::make_unique<DigitsReward>(), store, tokenizer, OverlongOptions{});
  }
  WorkerGroup<Critic> critic() const {
    CriticOptions critic{.model_path = model, .max_model_len = options.max_model_len};
    critic.trainer.mini_batch_samples = options.trainer.mini_batch_samples;
    critic.optimizer = options.optimizer;
    return group<Critic>(critic, store);
  }
  WorkerGroup<TokenAdvantages> token_advantages() const {
    return group<TokenAdvantages>(TokenAdvantageOptions{}, KlType{}, store);
  }

  // Four sums; a step's prompts.
  PromptList prompts() const {
    PromptList all;
    for (uint64_t i = 0; i < 4; ++i) {
      auto prompt = std::make_shared<Prompt>();
      prompt->id = i;
      prompt->token_ids = tokenizer.encode(std::to_string(i + 1) + "+" + std::to_string(2 * i) + "=");
      all.push_back(std::move(prompt));
    }
    return all;
  }

  std::filesystem::path model;
  Tokenizer tokenizer;
  std::shared_ptr<TrajectoryStore> store;
  EngineOptions options;

 private:
  // One worker here; a group of several splits arguments and merges results by their types.
  template <class Worker, class... Arguments>
  static WorkerGroup<Worker> group(Arguments&&... arguments) {
    return WorkerGroup<Worker>({std::make_shared<Worker>(std::forward<Arguments>(arguments)...)});
  }
};

inline double mean_reward(const RolloutBatch& batch) {
  double sum = 0;
  for (const Sample& sample : batch) sum += sample.reward;
  return sum / static_cast<double>(batch.size());
}

}  // namespace dataflow
