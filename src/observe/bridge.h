// A metrics service with a Python client only (wandb, mlflow, swanlab, trackio), fed through a child process, so that
// nothing it does can touch the run: steps are queued and sent by a thread of its own, a full queue drops them, and a
// child that crashes, hangs or lacks the package costs one warning.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <filesystem>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "observe/tracker.h"

namespace tandem {

struct BridgeOptions {
  std::string service;  // the module's name
  std::string project, experiment;
  std::filesystem::path folder;                             // the run's; the service's own files go below it
  std::vector<std::pair<std::string, std::string>> config;  // shown by the service
  bool resume = false;                                      // goes on with the service's run of before, if it is known
  size_t most_queued = 4096;                                // steps
  std::chrono::milliseconds finish_limit{30'000};           // for the service to finish at the end of the run
};

// log() never blocks and never throws. Thread-safe. The program is TANDEM_PYTHON, else python3.
class BridgeSink final : public MetricSink {
 public:
  explicit BridgeSink(BridgeOptions options);
  ~BridgeSink() override;  // waits until the service has everything, up to finish_limit
  void log(int64_t step, const Metrics& metrics) override;

 private:
  void serve();
  void give_up(const std::string& why);

  const BridgeOptions options_;
  std::mutex mutex_;  // guards what follows
  std::deque<std::string> queue_;
  bool closing_ = false, given_up_ = false, warned_of_drop_ = false;
  int wake_fd_ = -1;  // readable when there is something new for the thread
  std::thread thread_;
};

}  // namespace tandem
