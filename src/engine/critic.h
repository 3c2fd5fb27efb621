// The critic: a model of its own that predicts, before each response token, what reward is still to come. It starts
// from a policy's weights with a new head (or from a saved critic's). Not thread-safe.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>

#include "data/trajectory_store.h"
#include "engine/model_state.h"
#include "observe/metrics.h"
#include "train/value_trainer.h"

namespace tandem {

struct CriticOptions {
  std::filesystem::path model_path;
  int64_t max_model_len = 1024;  // prompt and response together
  at::Device device = at::kCPU;
  ValueTrainerOptions trainer;
  OptimizerOptions optimizer;
  CheckpointContents save, load;
  uint64_t seed = 0;                              // of a new head: normal(0, 0.02), as in transformers
  std::function<void(int64_t tokens)> on_tokens;  // progress; may be empty
};

class Critic {
 public:
  Critic(const CriticOptions& options, std::shared_ptr<TrajectoryStore> store);
  virtual ~Critic() = default;
  Critic(const Critic&) = delete;
  Critic& operator=(const Critic&) = delete;

  virtual RolloutBatch compute_values(const RolloutBatch& batch);  // sets the records' values
  virtual Metrics update_values(const RolloutBatch& batch);        // towards the records' returns; critic/*

  // critic/huggingface (score.weight and score.bias in the place of the head), critic/optim.safetensors,
  // critic/extra_state.json.
  virtual void save(const std::filesystem::path& folder) const;
  virtual void load(const std::filesystem::path& folder);

  virtual void copy_state(ModelStateCopy& into) const;  // as the engine's
  virtual void restore(const ModelStateCopy& copy);
  void save_copy(const std::filesystem::path& folder, const ModelStateCopy& copy, WritePace* pace) const;

  virtual const ModelConfig& model() const { return decoder_->config(); }
  virtual uint64_t state_bytes() const { return state_copy_bytes(*decoder_); }  // of a copy

  Decoder& decoder() { return *decoder_; }
  const Decoder& decoder() const { return *decoder_; }

 protected:
  // With a decoder that is already made; null: another process has it (engine/remote_roles.h).
  Critic(CriticOptions options, std::shared_ptr<TrajectoryStore> store, std::unique_ptr<Decoder> decoder);
  const CriticOptions& options() const { return options_; }
  TrajectoryStore& store() const { return *store_; }

 private:
  CriticOptions options_;
  std::shared_ptr<TrajectoryStore> store_;
  std::unique_ptr<Decoder> decoder_;
  std::unique_ptr<Optimizer> optimizer_;  // made by the first update, or by load()
};

}  // namespace tandem
