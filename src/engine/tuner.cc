#include "engine/tuner.h"

#include <algorithm>

#include "engine/engine.h"
#include "engine/memory_plan.h"
#include "engine/value_model.h"
#include "train/preference_trainer.h"

namespace tandem {
namespace {

// Of a GPU's memory, what weights, optimizer, gradients and activations may take together.
constexpr double kUtilization = 0.9;

void plan_activations(BatchingOptions& batching, const Decoder& decoder) {
  if (!decoder.on_device()) return;
  const int64_t total = kernels::device_memory(decoder.weights().embed_VE).total;
  const ParameterCounts counts = count_parameters(decoder.weights());
  batching.activation_bytes =
      plan_memory(counts.trained, total, kUtilization, kWorkspaceBytes, counts.frozen, "").activation_bytes;
}

class SupervisedTuner final : public Tuner {
 public:
  explicit SupervisedTuner(const TunerOptions& options)
      : Tuner(options, load_decoder(options.model_path, options.max_length, options.device, true, options.lora)) {}

  // The loss of a policy that is told to make every marked token likelier: −log π, each of advantage 1.
  Metrics update(const TuningBatch& batch) override {
    TrainerOptions options;
    static_cast<BatchingOptions&>(options) = options_.batching;
    options.policy = &find_policy_loss("reinforce");
    options.mini_batch_samples = static_cast<int64_t>(batch.size());
    options.lr_key = "optim.lr";
    std::vector<TrainingSample> samples;
    for (const TrajectoryPtr& trajectory : batch) {
      TrainingSample& sample = samples.emplace_back();
      sample.trajectory = trajectory;
      sample.advantage = 1;
      sample.old_logprobs.assign(trajectory->response_ids.size(), 0);  // unread: this loss has no ratio
    }
    const UpdateStats stats = Trainer(*decoder_, optimizer(), options).update(samples, options_.on_tokens);
    Metrics metrics;
    metrics.set("train/loss", stats.loss);
    metrics.set("train/grad_norm", stats.grad_norm);
    metrics.set("train/lr", stats.lr);
    metrics.set("train/global_tokens", static_cast<double>(stats.num_tokens));
    return metrics;
  }

  Metrics evaluate(const TuningBatch& batch) const override {
    std::vector<PackItem> items;
    for (const TrajectoryPtr& t : batch) items.push_back({t->prompt->token_ids, t->response_ids});
    const std::vector<double> temperatures(items.size(), 1.0);
    const auto logprobs = packed_logprobs(*decoder_, items, temperatures, options_.batching.max_micro_tokens);
    double loss = 0, tokens = 0;
    for (size_t i = 0; i < batch.size(); ++i) {
      const std::vector<uint8_t> mask = token_mask(*batch[i]);
      for (size_t t = 0; t < mask.size(); ++t)
        if (mask[t] != 0) loss -= logprobs[i][t], ++tokens;
    }
    Metrics metrics;
    metrics.set("val/loss", loss / std::max(1.0, tokens));
    return metrics;
  }
};

Metrics preference_metrics(const PreferenceStats& stats, const std::string& prefix) {
  Metrics metrics;
  metrics.set(prefix + "loss", stats.loss);
  metrics.set(prefix + "accuracy", stats.accuracy);
  metrics.set(prefix + "margin", stats.margin);
  metrics.set(prefix + "score/chosen", stats.chosen_score);
  metrics.set(prefix + "score/rejected", stats.rejected_score);
  return metrics;
}

class PreferenceTuner final : public Tuner {
 public:
  explicit PreferenceTuner(const TunerOptions& options)
      : Tuner(options, load_value_decoder(options.model_path, options.max_length, options.seed, options.device, true)) {
  }

  Metrics update(const TuningBatch& batch) override {
    PreferenceTrainer trainer(*decoder_, optimizer(), options_.batching);
    const auto result = trainer.update(samples_of(batch), options_.on_tokens);
    Metrics metrics = preference_metrics(result, "train/");
    metrics.set("train/grad_norm", result.grad_norm);
    metrics.set("train/lr", result.lr);
    double tokens = 0;
    for (const TrajectoryPtr& reply : batch) tokens += static_cast<double>(reply->response_ids.size());
    metrics.set("train/global_tokens", tokens);
    return metrics;
  }

  Metrics evaluate(const TuningBatch& batch) const override {
    const auto scores = packed_scores(*decoder_, samples_of(batch), options_.batching.max_micro_tokens);
    return preference_metrics(preference_stats(scores), "val/");
  }

 private:
  static std::vector<TrainingSample> samples_of(const TuningBatch& batch) {
    std::vector<TrainingSample> samples;
    for (const TrajectoryPtr& reply : batch) samples.push_back(scored_sample(*reply));
    return samples;
  }
};

}  // namespace

Tuner::Tuner(TunerOptions options, std::unique_ptr<Decoder> decoder)
    : options_(std::move(options)), decoder_(std::move(decoder)) {
  plan_activations(options_.batching, *decoder_);
}

Optimizer& Tuner::optimizer() {
  if (!optimizer_) optimizer_ = std::make_unique<Optimizer>(decoder_->weights(), options_.optimizer);
  return *optimizer_;
}

void Tuner::save(const std::filesystem::path& folder) const {
  const auto updates = static_cast<uint64_t>(optimizer_ ? optimizer_->num_steps() : 0);
  save_model_state(folder, options_.model_path, *decoder_, optimizer_.get(), updates, options_.save);
}

void Tuner::copy_state(ModelStateCopy& into) const {
  copy_model_state(*decoder_, optimizer_.get(), static_cast<uint64_t>(optimizer_ ? optimizer_->num_steps() : 0), into);
}

void Tuner::save_copy(const std::filesystem::path& folder, const ModelStateCopy& copy, WritePace* pace) const {
  save_model_copy(folder, options_.model_path, decoder_->config(), copy, options_.save, pace);
}

void Tuner::load(const std::filesystem::path& folder) {
  load_model_state(folder, *decoder_, options_.optimizer, optimizer_, options_.load);
}

std::unique_ptr<Tuner> make_supervised_tuner(const TunerOptions& options) {
  return std::make_unique<SupervisedTuner>(options);
}

std::unique_ptr<Tuner> make_preference_tuner(const TunerOptions& options) {
  return std::make_unique<PreferenceTuner>(options);
}

}  // namespace tandem
