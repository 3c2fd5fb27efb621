// The user's reward in Python, verl's contract:
//   compute_score(data_source, solution_str, ground_truth, extra_info=None, **kwargs)
// sync or async, returning a number, or a dict with "score" whose other numeric entries become metrics (others, and
// numbers that are not finite, are left out of the metrics).
// It is called by keywords, in child processes (TANDEM_PYTHON or python3), one sample each at a time; ground_truth is
// text as in RewardRequest, extra_info a dict. What it prints goes to stderr. A
// sample that takes too long, raises, kills its process or returns no finite number becomes a DataError that names the
// sample and the reason; its process is replaced.
#pragma once

#include <memory>
#include <mutex>

#include "reward/reward.h"

namespace tandem {

class PythonWorker;

class PythonReward final : public RewardFunction {
 public:
  // Starts the processes and imports the file in each, so that a mistake shows before any long work: ConfigError.
  explicit PythonReward(const RewardOptions& options);
  ~PythonReward() override;  // ends the processes and waits for them

  std::vector<RewardResult> score(std::span<const RewardRequest> requests) override;

 private:
  void start(PythonWorker* worker);
  void stop_busy();
  std::vector<RewardResult> score_all(std::span<const RewardRequest> requests);

  const RewardOptions options_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<PythonWorker>> workers_;
};

}  // namespace tandem
