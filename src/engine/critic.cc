#include "engine/critic.h"

#include "base/rng.h"
#include "engine/engine.h"

namespace tandem {
namespace {

constexpr double kInitialStd = 0.02;

// A folder without a value head is a policy's: its own head is left out.
std::unique_ptr<Decoder> load_critic(const CriticOptions& options) {
  ModelConfig config = load_model_config(options.model_path);
  check_model_length(config, options.model_path, options.max_model_len);
  config.value_head = true;
  DecoderWeights weights = zero_weights(config);
  const WeightFolder files(options.model_path);
  if (files.contains("score.weight")) {
    load_weights(files, config, weights);
  } else {
    ModelConfig trunk = config;
    trunk.value_head = false;
    trunk.tie_word_embeddings = true;
    DecoderWeights parts = weights;
    parts.value_head_1E = parts.value_bias_1 = at::Tensor();
    load_weights(files, trunk, parts);
    Philox random(options.seed, 1);
    for (float& weight : values(weights.value_head_1E)) weight = static_cast<float>(kInitialStd * random.normal());
  }
  return std::make_unique<Decoder>(std::move(config), std::move(weights), options.max_model_len);
}

}  // namespace

Critic::Critic(CriticOptions options, std::shared_ptr<TrajectoryStore> store)
    : options_(std::move(options)), store_(std::move(store)), decoder_(load_critic(options_)) {}

RolloutBatch Critic::compute_values(const RolloutBatch& batch) {
  std::vector<TrajectoryPtr> trajectories;
  std::vector<PackItem> items;
  for (const Sample& sample : batch) {
    const TrajectoryPtr& t = trajectories.emplace_back(store_->get(sample.handle));
    items.push_back({t->prompt->token_ids, t->response_ids});
  }
  auto values = packed_values(*decoder_, items, options_.trainer.max_micro_tokens);
  for (size_t i = 0; i < batch.size(); ++i) {
    if (options_.on_tokens) options_.on_tokens(static_cast<int64_t>(values[i].size()));
    store_->set(batch[i].handle, &TokenRecord::values, std::move(values[i]));
  }
  return batch;
}

Metrics Critic::update_values(const RolloutBatch& batch) {
  if (!optimizer_) optimizer_ = std::make_unique<Optimizer>(decoder_->config(), options_.optimizer);
  std::vector<TrainingSample> samples;
  for (const Sample& sample : batch) samples.push_back(training_sample(*store_, sample));
  const ValueStats stats = ValueTrainer(*decoder_, *optimizer_, options_.trainer).update(samples, options_.on_tokens);
  ++num_updates_;
  Metrics metrics;
  metrics.set("critic/vf_loss", stats.vf_loss);
  metrics.set("critic/vf_clipfrac", stats.clip_fraction);
  metrics.set("critic/vpred_mean", stats.mean_value);
  metrics.set("critic/grad_norm", stats.grad_norm);
  metrics.set("critic/lr", stats.lr);
  return metrics;
}

void Critic::save(const std::filesystem::path& folder) const {
  save_model_state(folder / "critic", options_.model_path, *decoder_, optimizer_.get(), num_updates_, options_.save);
}

void Critic::load(const std::filesystem::path& folder) {
  const auto updates = load_model_state(folder / "critic", *decoder_, options_.optimizer, optimizer_, options_.load);
  num_updates_ = updates.value_or(num_updates_);
}

}  // namespace tandem
