// A step's samples as verl's metrics and as lines of samples.jsonl. Pure functions.
#pragma once

#include "data/trajectory_store.h"
#include "observe/metrics.h"
#include "observe/samples_log.h"
#include "observe/validation_metrics.h"
#include "reward/reward_worker.h"

namespace tandem {

// critic/{score,rewards,advantages}, response_length, prompt_length, actor/entropy, and the reward function's extras.
Metrics batch_metrics(const ScoredBatch& batch, int64_t max_response_length, int64_t max_prompt_length);

// perf/*: `seconds` is the whole step's.
Metrics throughput_metrics(const RolloutBatch& batch, double seconds);

SampleRecord sample_record(int64_t step, const Sample& sample, const Trajectory& trajectory,
                           const Tokenizer& tokenizer);

std::vector<ValidationSample> validation_samples(const ScoredBatch& batch, const TrajectoryStore& store);

}  // namespace tandem
