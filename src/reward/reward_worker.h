// The reward role: responses become text, text becomes scores, scores become rewards.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "data/trajectory_store.h"
#include "reward/overlong.h"
#include "reward/reward.h"
#include "text/tokenizer.h"

namespace tandem {

// A scored batch, and the further numbers the reward function gave each sample (in the batch's order).
struct ScoredBatch {
  RolloutBatch samples;
  std::vector<std::vector<std::pair<std::string, double>>> extras;
};

// Rewards of an interrupted run, which need not be asked for again. Both may be empty; called from the threads of
// submit() and score().
struct GivenRewards {
  std::function<std::optional<RewardResult>(const Trajectory&)> recall;
  std::function<void(const Trajectory&, const RewardResult&)> record;
};

// submit(), throw_failed() and score() may be called from different threads.
class RewardWorker {
 public:
  // `tokenizer` must outlive it.
  RewardWorker(std::unique_ptr<RewardFunction> function, std::shared_ptr<const TrajectoryStore> store,
               const Tokenizer& tokenizer, const OverlongOptions& overlong, GivenRewards given = {})
      : function_(std::move(function)),
        store_(std::move(store)),
        tokenizer_(tokenizer),
        overlong_(overlong),
        given_(std::move(given)) {}

  // Starts scoring a response while others are still being drawn. Optional: score() starts what was not submitted.
  void submit(const TrajectoryPtr& trajectory);

  // Throws the DataError of a submitted response that cannot be scored, as soon as that is known: what else is drawn is
  // then of no use. Cheap, never waits.
  void throw_failed();

  // Sets score and reward of each sample. DataError as RewardFunction::score.
  ScoredBatch score(const RolloutBatch& batch);

  // What the reward function measured of itself since the last call, and perf/reward_stall_s, the seconds that score()
  // waited for it: once a step, after its last score(). Warns when that was long.
  Metrics take_report();

 private:
  struct Pending {
    std::weak_ptr<const Trajectory> trajectory;  // an expired one was never asked for
    std::shared_future<RewardResult> result;
    bool succeeded = false;
  };

  std::future<RewardResult> start(const Trajectory& trajectory);
  std::shared_future<RewardResult> take(const TrajectoryPtr& trajectory);
  void forget_unasked();

  std::unique_ptr<RewardFunction> function_;
  std::shared_ptr<const TrajectoryStore> store_;
  const Tokenizer& tokenizer_;
  OverlongOptions overlong_;
  GivenRewards given_;
  std::mutex mutex_;
  std::map<const Trajectory*, Pending> pending_;
  double waited_ = 0;  // seconds, since the last report
  std::chrono::steady_clock::time_point last_report_ = std::chrono::steady_clock::now();
  std::optional<std::chrono::steady_clock::time_point> last_warning_;
};

}  // namespace tandem
