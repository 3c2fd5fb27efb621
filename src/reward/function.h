// The user's reward in Python, verl's contract:
//   compute_score(data_source, solution_str, ground_truth, extra_info=None, **kwargs)
// sync or async, returning a number, or a dict with "score" whose other numeric entries become metrics (others, and
// numbers that are not finite, are left out of the metrics).
// It is called by keywords, in child processes (TANDEM_PYTHON or python3), one sample each at a time; ground_truth is
// text as in RewardRequest, extra_info a dict. What it prints goes to stderr. A
// sample that takes too long, raises, kills its process or returns no finite number becomes a DataError that names the
// sample and the reason; a process that was killed or died is replaced. Where it was killed from outside (SIGKILL,
// SIGTERM), its sample is asked once more.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <thread>

#include "reward/reward.h"

namespace tandem {

class PythonWorker;

class PythonReward final : public RewardFunction {
 public:
  // Starts the processes and imports the file in each, so that a mistake shows before any long work: ConfigError.
  explicit PythonReward(const RewardOptions& options);
  ~PythonReward() override;  // ends the processes and waits for them

  std::future<RewardResult> submit(RewardRequest request) override;

 private:
  struct Job {
    RewardRequest request;
    std::string line;  // what its process is sent
    std::promise<RewardResult> result;
    bool asked_before = false;  // of a process that was killed
  };

  void start(PythonWorker* worker);
  void serve();
  void give_out();
  void take(PythonWorker* worker);
  void fail_all(const std::exception_ptr& error);

  const RewardOptions options_;
  std::vector<std::unique_ptr<PythonWorker>> workers_;  // of the constructor, then of the service thread
  std::mutex mutex_;                                    // guards what follows
  std::deque<Job> queue_;
  bool stopping_ = false;
  int wake_fd_ = -1;  // readable when there is something new for the service thread
  std::thread service_;
};

}  // namespace tandem
