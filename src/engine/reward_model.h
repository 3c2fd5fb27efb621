// The role that scores replies by a trained reward model: its value after their last token. Not thread-safe.
#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "data/trajectory_store.h"
#include "model/decoder.h"

namespace tandem {

class RewardModel {
 public:
  // ConfigError where the folder holds no score.weight.
  RewardModel(const std::filesystem::path& folder, at::Device device, int64_t max_micro_tokens);

  // One score a reply. Neighbours that share their prompt have it computed once.
  std::vector<float> score(const std::vector<TrajectoryPtr>& replies) const;

  int64_t max_length() const;  // tokens of prompt and reply together

 private:
  std::unique_ptr<Decoder> decoder_;
  int64_t max_micro_tokens_;
};

}  // namespace tandem
