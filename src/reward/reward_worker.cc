#include "reward/reward_worker.h"

#include <fmt/format.h>

#include <utility>

#include "base/log.h"

namespace tandem {
namespace {

using Clock = std::chrono::steady_clock;

// A wait worth a word: this long, and this share of the time since the last report.
constexpr double kStallSeconds = 1.0, kStallShare = 0.1;
constexpr std::chrono::minutes kQuietAfterWarning{1};

double seconds_between(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

}  // namespace

std::future<RewardResult> RewardWorker::start(const Trajectory& trajectory) {
  if (auto known = given_.recall ? given_.recall(trajectory) : std::nullopt) {
    std::promise<RewardResult> result;
    result.set_value(std::move(*known));
    return result.get_future();
  }
  const Prompt& prompt = *trajectory.prompt;
  return function_->submit({prompt.data_source, tokenizer_.decode(trajectory.response_ids), prompt.ground_truth,
                            prompt.extra_info, trajectory.stop_reason != StopReason::kLength, prompt.id,
                            trajectory.sample_index, prompt.messages});
}

void RewardWorker::submit(const TrajectoryPtr& trajectory) {
  auto result = start(*trajectory);
  const std::lock_guard lock(mutex_);
  pending_[trajectory.get()] = {trajectory, result.share()};
}

void RewardWorker::throw_failed() {
  const std::lock_guard lock(mutex_);
  for (auto& [key, pending] : pending_) {
    if (pending.succeeded || pending.trajectory.expired()) continue;
    if (pending.result.wait_for(std::chrono::seconds(0)) != std::future_status::ready) continue;
    pending.result.get();
    pending.succeeded = true;
  }
}

std::shared_future<RewardResult> RewardWorker::take(const TrajectoryPtr& trajectory) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = pending_.find(trajectory.get());
    if (found != pending_.end() && found->second.trajectory.lock() == trajectory) {
      auto result = std::move(found->second.result);
      pending_.erase(found);
      return result;
    }
  }
  return start(*trajectory).share();
}

ScoredBatch RewardWorker::score(const RolloutBatch& batch) {
  std::vector<std::shared_future<RewardResult>> results;
  for (const Sample& sample : batch) results.push_back(take(store_->get(sample.handle)));
  const auto begin = Clock::now();
  ScoredBatch scored{batch, {}};
  for (size_t i = 0; i < batch.size(); ++i) {
    const RewardResult result = results[i].get();
    if (given_.record) given_.record(*store_->get(batch[i].handle), result);
    Sample& sample = scored.samples[i];
    sample.score = result.score;
    sample.reward = sample.score + overlong_penalty(overlong_, sample.response_length);
    scored.extras.push_back(result.extra);
  }
  waited_ += seconds_between(begin, Clock::now());
  forget_unasked();
  return scored;
}

void RewardWorker::forget_unasked() {
  const std::lock_guard lock(mutex_);
  std::erase_if(pending_, [](const auto& entry) { return entry.second.trajectory.expired(); });
}

Metrics RewardWorker::take_report() {
  const auto now = Clock::now();
  const double since_last = seconds_between(std::exchange(last_report_, now), now);
  const double waited = std::exchange(waited_, 0);
  Metrics report = function_->take_metrics();
  report.set("perf/reward_stall_s", waited);
  if (waited < kStallSeconds || waited < kStallShare * since_last) return report;
  if (last_warning_ && now - *last_warning_ < kQuietAfterWarning) return report;
  last_warning_ = now;
  const auto p95 = report.get("reward_server/latency_s/p95");
  log_warn(
      fmt::format("the step waited {:.1f} s for rewards, {:.0f} % of its time{}: give the reward function more "
                  "workers, or the reward server more replicas or reward.reward_model.max_concurrent",
                  waited, 100 * waited / since_last, p95 ? fmt::format(" (p95 of a request {:.2f} s)", *p95) : ""));
  return report;
}

}  // namespace tandem
