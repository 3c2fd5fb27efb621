// What a step trains on: drawn, scored and, with dynamic sampling (DAPO, arXiv:2503.14476), drawn again until enough
// groups have samples that differ.
#pragma once

#include <functional>
#include <string>

#include "control/worker_group.h"
#include "engine/engine.h"
#include "programs/dispatch.h"
#include "reward/reward_worker.h"

namespace tandem {

using PromptSource = std::function<PromptList(size_t count)>;  // the next prompts of the data, without end

struct CollectOptions {
  size_t prompts_per_step = 0;
  bool greedy_baseline = false;  // remax: also the reward of one greedy response a prompt
  bool filter_groups = false;
  std::string filter_metric =
      "acc";                        // acc, score, seq_reward, seq_final_reward, or one of the reward function's numbers
  int64_t max_num_gen_batches = 0;  // draws a step may take; 0: until the data has been through
  size_t num_train_prompts = 0;     // of the data, for that bound
};

class Collector {
 public:
  // The groups must outlive it.
  Collector(CollectOptions options, WorkerGroup<Engine>& actor, WorkerGroup<RewardWorker>& reward)
      : options_(std::move(options)), actor_(actor), reward_(reward) {}

  // Exactly prompts_per_step groups, numbered from 0; each further draw takes exactly as many prompts as groups are
  // missing. Groups of one always stay. A prompt that comes twice in a step is drawn once, since its samples would be
  // the same. DataError saying how many groups differed when the bound is reached.
  ScoredBatch collect(const PromptSource& prompts);
  void set_prompts_per_step(size_t prompts) { options_.prompts_per_step = prompts; }

  Metrics metrics() const { return metrics_; }  // of the last collect(): training/num_gen_batches and kin

 private:
  ScoredBatch draw(const PromptList& prompts);
  ScoredBatch collect_filtered(const PromptSource& prompts);

  CollectOptions options_;
  WorkerGroup<Engine>& actor_;
  WorkerGroup<RewardWorker>& reward_;
  Metrics metrics_;
};

}  // namespace tandem
