// A small random model, and samples to train it on.
#pragma once

#include <cmath>
#include <memory>

#include "base/rng.h"
#include "model/decoder.h"
#include "train/training_sample.h"

namespace tandem {

inline ModelConfig random_model(bool qwen) {
  ModelConfig c;
  c.architecture = qwen ? Architecture::kQwen3 : Architecture::kLlama;
  c.qk_norm = qwen, c.tie_word_embeddings = qwen;
  c.vocab_size = 136, c.hidden_size = 64, c.intermediate_size = 144, c.num_hidden_layers = 3;
  c.num_attention_heads = 4, c.num_key_value_heads = 2, c.head_dim = 16;
  c.max_position_embeddings = 128;
  return c;
}

inline Decoder random_decoder(const ModelConfig& config, uint64_t seed = 3) {
  DecoderWeights weights = empty_weights(config);
  init_random(weights, seed);
  return {config, std::move(weights), 128};
}

inline std::vector<TrainingSample> random_samples(const ModelConfig& config, uint64_t seed) {
  Philox random(seed);
  const auto tokens = [&](size_t length) {
    std::vector<TokenId> ids;
    for (size_t i = 0; i < length; ++i) ids.push_back(static_cast<TokenId>(random.below(config.vocab_size)));
    return ids;
  };
  std::vector<TrainingSample> all;
  for (uint64_t p = 0; p < 3; ++p) {
    auto prompt = std::make_shared<Prompt>();
    prompt->id = p;
    prompt->token_ids = tokens(3 + random.below(30));
    for (uint32_t s = 0; s < 4; ++s) {
      auto t = std::make_shared<Trajectory>();
      t->prompt = prompt;
      t->sample_index = s;
      t->response_ids = tokens(2 + random.below(40));
      for (size_t i = 0; i < t->response_ids.size(); ++i)
        t->rollout_logprobs.push_back(-4.9f + 0.2f * static_cast<float>(random.uniform()));
      all.push_back({t, random.normal()});
    }
  }
  return all;
}

// ‖a − b‖, and ‖b‖.
inline double distance(const DecoderWeights& a, const DecoderWeights& b, double& norm) {
  double difference = 0, squares = 0;
  const auto x = parameters(a), y = parameters(b);
  for (size_t p = 0; p < x.size(); ++p) {
    const auto of_a = values(x[p].tensor), of_b = values(y[p].tensor);
    for (size_t i = 0; i < of_a.size(); ++i) {
      difference += (double{of_a[i]} - of_b[i]) * (double{of_a[i]} - of_b[i]);
      squares += double{of_b[i]} * of_b[i];
    }
  }
  norm = std::sqrt(squares);
  return std::sqrt(difference);
}

}  // namespace tandem
