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
  Critic(CriticOptions options, std::shared_ptr<TrajectoryStore> store);

  RolloutBatch compute_values(const RolloutBatch& batch);  // sets the records' values
  Metrics update_values(const RolloutBatch& batch);        // towards the records' returns; critic/*

  // critic/huggingface (score.weight and score.bias in the place of the head), critic/optim.safetensors,
  // critic/extra_state.json.
  void save(const std::filesystem::path& folder) const;
  void load(const std::filesystem::path& folder);

  void copy_state(ModelStateCopy& into) const;  // as the engine's
  void restore(const ModelStateCopy& copy);
  void save_copy(const std::filesystem::path& folder, const ModelStateCopy& copy, WritePace* pace) const;

  Decoder& decoder() { return *decoder_; }
  const Decoder& decoder() const { return *decoder_; }

 private:
  CriticOptions options_;
  std::shared_ptr<TrajectoryStore> store_;
  std::unique_ptr<Decoder> decoder_;
  std::unique_ptr<Optimizer> optimizer_;  // made by the first update, or by load()
};

}  // namespace tandem
