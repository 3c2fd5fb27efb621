// One small model of either kind trained by one rank and by many: what must be the same, and in which layouts.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "engine/engine.h"

namespace tandem::layouts {

inline constexpr int kSteps = 5;

inline ModelConfig tiny_model(bool qwen) {
  ModelConfig c;
  c.architecture = qwen ? Architecture::kQwen3 : Architecture::kLlama;
  c.qk_norm = qwen, c.tie_word_embeddings = qwen;
  c.vocab_size = 104, c.hidden_size = 48, c.intermediate_size = 88, c.num_hidden_layers = 5;
  c.num_attention_heads = 8, c.num_key_value_heads = 4, c.head_dim = 16;
  c.max_position_embeddings = 96;
  return c;
}

// AdamW without memory and with an epsilon beyond any gradient is plain gradient descent, and its first moment is the
// gradient.
inline EngineOptions engine_options() {
  EngineOptions o;
  o.max_model_len = 96;
  o.kv_cache_bytes = 4 << 20;
  o.sampling.max_tokens = 10;
  o.sampling.eos_ids = {2};
  o.sampling.seed = 11;
  o.validation_sampling = o.sampling;
  o.validation_sampling.temperature = 0;
  o.num_samples = 2;
  o.trainer.mini_batch_samples = 10;
  o.trainer.max_micro_tokens = 40;
  o.optimizer.beta1 = o.optimizer.beta2 = o.optimizer.weight_decay = o.optimizer.clip_grad = 0;
  o.optimizer.eps = 1e8;
  o.optimizer.lr = 1e8;  // a rate of 1
  return o;
}

inline std::unique_ptr<Engine> make_engine(bool qwen, const std::shared_ptr<TrajectoryStore>& store) {
  const ModelConfig config = tiny_model(qwen);
  DecoderWeights weights = empty_weights(config);
  init_random(weights, 5);
  return std::make_unique<Engine>(engine_options(), std::make_unique<Decoder>(config, std::move(weights), 96), nullptr,
                                  store);
}

// Two of them share more than a block of keys, one has a single token.
inline std::vector<PromptPtr> prompts() {
  std::vector<PromptPtr> all;
  for (const uint64_t length : {19U, 1U, 7U, 33U, 12U}) {
    auto prompt = std::make_shared<Prompt>();
    prompt->id = 40 + all.size();
    for (uint64_t t = 0; t < length; ++t) prompt->token_ids.push_back(static_cast<TokenId>((t * 5 + length) % 96));
    all.push_back(prompt);
  }
  return all;
}

struct Found {
  std::vector<std::vector<TokenId>> greedy, drawn;  // before anything was learnt
  std::vector<std::vector<TokenId>> greedy_after;
  std::vector<double> ppo_kl;  // of each step
  ModelStateCopy first, last;  // after one step and after all
};

inline std::vector<std::vector<TokenId>> responses(const RolloutBatch& batch, const TrajectoryStore& store) {
  std::vector<std::vector<TokenId>> all;
  for (const Sample& sample : batch) all.push_back(store.get(sample.handle)->response_ids);
  return all;
}

inline Found train(Engine& engine, TrajectoryStore& store) {
  Found found;
  found.greedy = responses(engine.generate_validation(prompts()), store);
  for (int step = 0; step < kSteps; ++step) {
    RolloutBatch batch = engine.generate(prompts());
    if (step == 0) found.drawn = responses(batch, store);
    for (size_t i = 0; i < batch.size(); ++i) batch[i].advantage = (i % 2 == 0 ? 0.5 : -0.5) - 0.1 * double(i % 3);
    found.ppo_kl.push_back(engine.update_policy(batch).get("actor/ppo_kl").value());
    if (step == 0) engine.copy_state(found.first);
  }
  engine.copy_state(found.last);
  found.greedy_after = responses(engine.generate_validation(prompts()), store);
  return found;
}

inline const Found& one_rank(bool qwen) {
  static std::array<std::optional<Found>, 2> known;
  std::optional<Found>& found = known[qwen ? 1 : 0];
  if (!found) {
    const auto store = std::make_shared<TrajectoryStore>();
    found = train(*make_engine(qwen, store), *store);
  }
  return *found;
}

inline double relative_distance(const DecoderWeights& a, const DecoderWeights& b) {
  double difference = 0, squares = 0;
  const auto x = parameters(a), y = parameters(b);
  EXPECT_EQ(x.size(), y.size());
  for (size_t p = 0; p < y.size(); ++p) {
    const auto of_a = values(x[p].tensor), of_b = values(y[p].tensor);
    EXPECT_EQ(of_a.size(), of_b.size());
    for (size_t i = 0; i < of_b.size(); ++i) {
      difference += (double{of_a[i]} - of_b[i]) * (double{of_a[i]} - of_b[i]);
      squares += double{of_b[i]} * of_b[i];
    }
  }
  return std::sqrt(difference / squares);
}

inline void expect_as_one_rank(const Found& found, bool qwen) {
  const Found& wanted = one_rank(qwen);
  EXPECT_EQ(found.greedy, wanted.greedy);
  EXPECT_EQ(found.drawn, wanted.drawn);
  EXPECT_EQ(found.greedy_after, wanted.greedy_after);
  EXPECT_EQ(found.ppo_kl, std::vector<double>(kSteps, 0.0)) << "training computes other log-probs than sampling";
  EXPECT_LE(relative_distance(found.first.exp_avg, wanted.first.exp_avg), 1e-5);
  EXPECT_LE(relative_distance(found.last.weights, wanted.last.weights), 1e-5);
}

// What docs/parallel.md promises; the last ones are beyond it.
inline constexpr Layout kLayouts[] = {
    {.dp_shard = 2},
    {.dp_shard = 4},
    {.dp_replicate = 2, .dp_shard = 2},
    {.tp = 2},
    {.tp = 3},
    {.tp = 4},
    {.pp = 2},
    {.pp = 4},
    {.pp = 2, .tp = 2},
    {.dp_shard = 2, .tp = 2},
    {.pp = 2, .dp_shard = 2},
    {.pp = 2, .dp_replicate = 2},
    {.pp = 2, .dp_shard = 2, .tp = 2},
    {.pp = 2, .chunks = 2},
    {.pp = 2, .dp_shard = 2, .chunks = 2},
    {.cp = 2},
    {.cp = 4},
    {.dp_shard = 2, .cp = 2},
    {.cp = 2, .tp = 2},
    {.pp = 2, .cp = 2},
};

using Case = std::tuple<bool, Layout>;  // whether Qwen3 or Llama

inline std::string case_id(const Case& which) {
  std::string name = (std::get<0>(which) ? "qwen3 " : "llama ") + layout_name(std::get<1>(which));
  std::ranges::replace(name, ' ', '_');
  return name;
}

// Those that are most unlike each other.
inline bool in_short_list(const Case& which) {
  const auto& [qwen, layout] = which;
  const Layout llama[] = {{.dp_replicate = 2, .dp_shard = 2}, {.pp = 2, .tp = 2}};
  const Layout qwen3[] = {{.cp = 2}, {.pp = 2, .dp_shard = 2}};
  return qwen ? std::ranges::find(qwen3, layout) != std::end(qwen3)
              : std::ranges::find(llama, layout) != std::end(llama);
}

}  // namespace tandem::layouts
