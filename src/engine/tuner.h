// A model that learns from given samples, without any sampling: supervised fine-tuning, and a reward model's training
// on pairs. Not thread-safe.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <vector>

#include "data/trajectory_store.h"
#include "engine/model_state.h"
#include "model/lora.h"
#include "observe/metrics.h"
#include "train/batching.h"

namespace tandem {

struct TunerOptions {
  std::filesystem::path model_path;
  LoraOptions lora;  // sft
  at::Device device = at::kCPU;
  int64_t max_length = 1024;  // of a sample
  BatchingOptions batching;   // each update is one mini-batch, whatever mini_batch_samples says
  OptimizerOptions optimizer;
  CheckpointContents save, load;
  uint64_t seed = 0;  // of a new value head
  OnTokens on_tokens;
};

using TuningBatch = std::vector<TrajectoryPtr>;

class Tuner {
 public:
  virtual ~Tuner() = default;

  // One optimizer step: train/loss, train/grad_norm, train/lr, train/global_tokens and more. DataError when the loss or
  // the gradient is not finite; the weights are then unchanged.
  virtual Metrics update(const TuningBatch& batch) = 0;
  virtual Metrics evaluate(const TuningBatch& batch) const = 0;  // val/loss and more; changes nothing

  // huggingface/ or lora_adapter/, optim.safetensors, extra_state.json.
  void save(const std::filesystem::path& folder) const;
  void load(const std::filesystem::path& folder);

  // The same in memory; any thread may write the copy to a folder while training goes on.
  void copy_state(ModelStateCopy& into) const;
  void save_copy(const std::filesystem::path& folder, const ModelStateCopy& copy, WritePace* pace) const;

  const Decoder& decoder() const { return *decoder_; }

 protected:
  Tuner(TunerOptions options, std::unique_ptr<Decoder> decoder);
  Optimizer& optimizer();  // makes it where there is none

  TunerOptions options_;
  std::unique_ptr<Decoder> decoder_;
  std::unique_ptr<Optimizer> optimizer_;
};

// Cross entropy of the tokens that a sample's mask names, its mean over the mini-batch's tokens.
std::unique_ptr<Tuner> make_supervised_tuner(const TunerOptions& options);

// Bradley-Terry on samples chosen, rejected, chosen, rejected, ...; the saved model has score.weight and score.bias in
// the head's place. Also train/accuracy and train/margin.
std::unique_ptr<Tuner> make_preference_tuner(const TunerOptions& options);

}  // namespace tandem
