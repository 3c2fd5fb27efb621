// Prompts, responses and training samples as bytes, for the ranks of an engine. Between processes of one program on
// machines of one kind: numbers travel as they lie in memory.
#pragma once

#include <string>
#include <vector>

#include "train/training_sample.h"

namespace tandem {

// Which samples of a prompt to draw.
struct DrawTask {
  PromptPtr prompt;
  std::vector<uint32_t> samples;
};
std::string encode_tasks(
    const std::vector<DrawTask>& tasks);  // prompts by id and tokens: nothing else is needed to draw
std::vector<DrawTask> decode_tasks(const std::string& bytes);

// Responses of prompts that the receiver knows by id.
std::string encode_trajectories(const std::vector<TrajectoryPtr>& trajectories);
std::vector<TrajectoryPtr> decode_trajectories(const std::string& bytes, const std::vector<PromptPtr>& prompts);

// Samples with their prompts; samples that share a prompt share it again.
std::string encode_samples(const std::vector<TrainingSample>& samples);
std::vector<TrainingSample> decode_samples(const std::string& bytes);

}  // namespace tandem
