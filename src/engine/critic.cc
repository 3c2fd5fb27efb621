#include "engine/critic.h"

#include "engine/response_pass.h"
#include "engine/value_model.h"
#include "model/flops.h"

namespace tandem {

Critic::Critic(const CriticOptions& options, std::shared_ptr<TrajectoryStore> store)
    : Critic(options, std::move(store),
             load_value_decoder(options.model_path, options.max_model_len, options.seed, options.device, true)) {}

Critic::Critic(CriticOptions options, std::shared_ptr<TrajectoryStore> store, std::unique_ptr<Decoder> decoder)
    : options_(std::move(options)), store_(std::move(store)), decoder_(std::move(decoder)) {}

RolloutBatch Critic::compute_values(const RolloutBatch& batch) {
  const ResponsePass pass = pass_over(batch, *store_);
  auto values = packed_values(*decoder_, pass.items, options_.trainer.max_micro_tokens);
  for (size_t i = 0; i < batch.size(); ++i) {
    if (options_.on_tokens) options_.on_tokens(static_cast<int64_t>(values[i].size()));
    store_->set(batch[i].handle, &TokenRecord::values, std::move(values[i]));
  }
  return batch;
}

Metrics Critic::update_values(const RolloutBatch& batch) {
  if (!optimizer_) optimizer_ = std::make_unique<Optimizer>(decoder_->weights(), options_.optimizer);
  std::vector<TrainingSample> samples;
  for (const Sample& sample : batch) samples.push_back(training_sample(*store_, sample));
  const ValueStats stats = ValueTrainer(*decoder_, *optimizer_, options_.trainer).update(samples, options_.on_tokens);
  Metrics metrics;
  metrics.set("critic/vf_loss", stats.vf_loss);
  metrics.set("critic/vf_clipfrac", stats.clip_fraction);
  metrics.set("critic/vpred_mean", stats.mean_value);
  metrics.set("critic/grad_norm", stats.grad_norm);
  metrics.set("critic/lr", stats.lr);
  metrics.set("critic/update_tflop", training_flops(decoder_->config(), stats.work, false) / 1e12);
  if (stats.num_skipped_updates > 0)
    metrics.set("critic/skipped_updates", static_cast<double>(stats.num_skipped_updates));
  return metrics;
}

void Critic::save(const std::filesystem::path& folder) const {
  const auto updates = static_cast<uint64_t>(optimizer_ ? optimizer_->num_steps() : 0);
  save_model_state(folder / "critic", options_.model_path, *decoder_, optimizer_.get(), updates, options_.save);
}

void Critic::copy_state(ModelStateCopy& into) const {
  copy_model_state(*decoder_, optimizer_.get(), static_cast<uint64_t>(optimizer_ ? optimizer_->num_steps() : 0), into);
}

void Critic::restore(const ModelStateCopy& copy) {
  restore_model_state(copy, *decoder_, options_.optimizer, optimizer_);
}

void Critic::save_copy(const std::filesystem::path& folder, const ModelStateCopy& copy, WritePace* pace) const {
  save_model_copy(folder / "critic", options_.model_path, model(), copy, options_.save, pace);
}

void Critic::load(const std::filesystem::path& folder) {
  load_model_state(folder / "critic", *decoder_, options_.optimizer, optimizer_, options_.load);
}

}  // namespace tandem
