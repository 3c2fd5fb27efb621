// The policy update of a tiny model's golden_grad.json as training samples, and gradients compared by norm.
#pragma once

#include <cmath>
#include <map>

#include "base/rng.h"
#include "model/fixtures.h"
#include "train/trainer.h"

namespace tandem {

inline std::vector<TrainingSample> golden_samples(const nlohmann::json& golden) {
  std::map<int, PromptPtr> prompts;
  std::vector<TrainingSample> samples;
  for (const auto& record : golden["samples"]) {
    PromptPtr& prompt = prompts[record["prompt_index"].get<int>()];
    if (!prompt) {
      auto made = std::make_shared<Prompt>();
      made->token_ids = record["prompt"].get<Tokens>();
      prompt = made;
    }
    auto trajectory = std::make_shared<Trajectory>();
    trajectory->prompt = prompt;
    trajectory->temperature = golden["temperature"].get<double>();
    trajectory->response_ids = record["response"].get<Tokens>();
    trajectory->rollout_logprobs = record["old_logprobs"].get<std::vector<float>>();
    samples.push_back(
        {trajectory, record["advantage"].get<double>(), record["ref_logprobs"].get<std::vector<float>>()});
  }
  return samples;
}

inline TrainerOptions golden_options(const nlohmann::json& golden, const std::string& loss) {
  const auto& settings = golden["losses"][loss];
  TrainerOptions options;
  options.policy_options.clip_low = golden["clip_low"].get<double>();
  options.policy_options.clip_high = golden["clip_high"].get<double>();
  options.policy_options.clip_c = golden["dual_clip"].get<double>();
  options.aggregation = parse_loss_aggregation(settings["agg"].get<std::string>());
  options.kl_loss_coef = settings["kl_coef"].get<double>();
  options.use_kl_loss = options.kl_loss_coef != 0;
  options.entropy_coeff = settings["entropy_coeff"].get<double>();
  options.kl_type = parse_kl_type("low_var_kl");
  options.mini_batch_samples = 64;
  return options;
}

// A tiny model with a value head of its own.
inline std::unique_ptr<Decoder> make_value_decoder(const std::filesystem::path& folder) {
  ModelConfig config = load_model_config(folder);
  config.value_head = true;
  DecoderWeights weights = zero_weights(config);
  ModelConfig trunk = config;
  trunk.value_head = false, trunk.tie_word_embeddings = true;
  DecoderWeights parts = weights;
  parts.value_head_1E = parts.value_bias_1 = at::Tensor();
  load_weights(WeightFolder(folder), trunk, parts);
  Philox random(3);
  for (float& weight : values(weights.value_head_1E)) weight = static_cast<float>(0.2 * random.normal());
  values(weights.value_bias_1)[0] = 0.1F;
  return std::make_unique<Decoder>(std::move(config), std::move(weights), 128);
}

struct Update {
  UpdateStats stats;
  DecoderWeights gradients;
};

inline Update gradient_of(Decoder& decoder, const TrainerOptions& options, std::span<const TrainingSample> samples) {
  Optimizer unused(decoder.weights(), {});
  Update update{{}, zeros_of_trained(decoder.weights())};
  update.stats = Trainer(decoder, unused, options).accumulate(samples, update.gradients);
  return update;
}

inline double norm(std::span<const float> x) {
  double sum = 0;
  for (const double v : x) sum += v * v;
  return std::sqrt(sum);
}

inline double distance(std::span<const float> a, std::span<const float> b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
  return std::sqrt(sum);
}

// Norm of the difference over the norm, of whole gradients.
inline double relative_error(const DecoderWeights& got, const DecoderWeights& wanted) {
  const auto a = parameters(got), b = parameters(wanted);
  double difference = 0, size = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference = std::hypot(difference, distance(values(a[i].tensor), values(b[i].tensor)));
    size = std::hypot(size, norm(values(b[i].tensor)));
  }
  return difference / size;
}

inline bool bitwise_equal(const DecoderWeights& a, const DecoderWeights& b) {
  const auto x = parameters(a), y = parameters(b);
  for (size_t i = 0; i < x.size(); ++i)
    if (!same_bits(values(x[i].tensor), values(y[i].tensor))) return false;
  return x.size() == y.size();
}

}  // namespace tandem
