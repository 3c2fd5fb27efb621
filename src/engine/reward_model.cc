#include "engine/reward_model.h"

#include "base/error.h"
#include "engine/value_model.h"
#include "train/preference_trainer.h"

namespace tandem {
namespace {

std::unique_ptr<Decoder> load(const std::filesystem::path& folder, at::Device device) {
  if (!WeightFolder(folder).contains("score.weight"))
    throw ConfigError("reward.reward_model.model_path: " + folder.string() +
                      " holds no score.weight, so it is no reward model; train one with tandem reward-model and name "
                      "its global_step_N/huggingface");
  return load_value_decoder(folder, load_model_config(folder).max_position_embeddings, 0, device);
}

}  // namespace

RewardModel::RewardModel(const std::filesystem::path& folder, at::Device device, int64_t max_micro_tokens)
    : decoder_(load(folder, device)), max_micro_tokens_(max_micro_tokens) {}

int64_t RewardModel::max_length() const { return decoder_->config().max_position_embeddings; }

std::vector<float> RewardModel::score(const std::vector<TrajectoryPtr>& replies) const {
  std::vector<TrainingSample> samples;
  for (const TrajectoryPtr& reply : replies) samples.push_back(scored_sample(*reply));
  return packed_scores(*decoder_, samples, max_micro_tokens_);
}

}  // namespace tandem
