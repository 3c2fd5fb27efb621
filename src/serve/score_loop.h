// One thread that scores for many: what waits is scored together, in the order in which it came.
#pragma once

#include <condition_variable>
#include <deque>
#include <future>
#include <mutex>
#include <vector>

#include "engine/reward_model.h"

namespace tandem {

// Thread-safe, but for run().
class ScoreLoop {
 public:
  // `max_waiting`: replies; beyond it a request is refused as Overloaded (engine_loop.h).
  ScoreLoop(RewardModel model, int64_t max_waiting) : model_(std::move(model)), max_waiting_(max_waiting) {}

  void run();   // until stop(), on the calling thread
  void stop();  // what waits fails as ShuttingDown

  std::future<std::vector<float>> submit(std::vector<TrajectoryPtr> replies);  // one score each
  int64_t max_length() const { return model_.max_length(); }

 private:
  struct Waiting {
    std::vector<TrajectoryPtr> replies;
    std::promise<std::vector<float>> scores;
  };
  void score(std::vector<Waiting>& batch) const;

  const RewardModel model_;
  const int64_t max_waiting_;
  std::mutex mutex_;
  std::condition_variable work_;
  std::deque<Waiting> waiting_;
  int64_t num_waiting_ = 0;
  bool stopping_ = false;
};

}  // namespace tandem
