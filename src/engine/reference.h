// The frozen model that KL is measured against: the policy as it was at the start; of a policy with adapters, the
// policy without them. Not thread-safe.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <vector>

#include "data/trajectory_store.h"
#include "model/decoder.h"
#include "train/loss.h"

namespace tandem {

struct ReferenceOptions {
  std::filesystem::path model_path;
  at::Device device = at::kCPU;
  int64_t max_model_len = 1024;
  int64_t max_micro_tokens = 4096;
  KlType kl_type;                                 // of Sample::kl
  std::function<void(int64_t tokens)> on_tokens;  // progress; may be empty
};

class Reference {
 public:
  Reference(const ReferenceOptions& options, std::shared_ptr<TrajectoryStore> store);
  // With a decoder that is already made: Decoder::base() of a policy that trains adapters, so that nothing is held
  // twice.
  Reference(ReferenceOptions options, std::unique_ptr<Decoder> decoder, std::shared_ptr<TrajectoryStore> store);

  virtual ~Reference() = default;

  // Stores every response token's log-prob with its trajectory, at the trajectory's temperature, and sets Sample::kl.
  RolloutBatch compute_logprobs(const RolloutBatch& batch);

 protected:
  virtual std::vector<std::vector<float>> logprobs_of(const RolloutBatch& batch);
  TrajectoryStore& store() const { return *store_; }

 private:
  ReferenceOptions options_;
  std::shared_ptr<TrajectoryStore> store_;
  std::unique_ptr<Decoder> decoder_;
};

}  // namespace tandem
