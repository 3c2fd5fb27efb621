#include "engine/value_model.h"

#include "base/rng.h"
#include "engine/engine.h"

namespace tandem {
namespace {

constexpr double kInitialStd = 0.02;

}  // namespace

std::unique_ptr<Decoder> load_value_decoder(const std::filesystem::path& folder, int64_t max_model_len, uint64_t seed,
                                            at::Device device, bool trained) {
  ModelConfig config = load_model_config(folder);
  config.value_head = true;
  check_model(config, folder, max_model_len, device);
  DecoderWeights weights = zero_weights(config);
  const WeightFolder files(folder);
  if (files.contains("score.weight")) {
    load_weights(files, config, weights);
  } else {
    ModelConfig trunk = config;
    trunk.value_head = false;
    trunk.tie_word_embeddings = true;
    DecoderWeights parts = weights;
    parts.value_head_1E = parts.value_bias_1 = at::Tensor();
    load_weights(files, trunk, parts);
    Philox random(seed, 1);
    for (float& weight : values(weights.value_head_1E)) weight = static_cast<float>(kInitialStd * random.normal());
  }
  weights = placed_weights(std::move(weights), device, trained);
  spread_masters(weights, files);
  return std::make_unique<Decoder>(std::move(config), std::move(weights), max_model_len);
}

}  // namespace tandem
