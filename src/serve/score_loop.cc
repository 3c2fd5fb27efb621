#include "serve/score_loop.h"

#include "serve/engine_loop.h"

namespace tandem {
namespace {

constexpr int64_t kBatch = 64;  // replies scored together: more would keep the first ones waiting

}  // namespace

std::future<std::vector<float>> ScoreLoop::submit(std::vector<TrajectoryPtr> replies) {
  std::future<std::vector<float>> scores;
  const auto count = std::ssize(replies);
  if (count > max_waiting_)
    throw DataError("the request holds more replies than are scored at once (" + std::to_string(max_waiting_) +
                    "); send it in parts");
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) throw ShuttingDown("the server is shutting down");
    if (num_waiting_ + count > max_waiting_)
      throw Overloaded(std::to_string(num_waiting_) + " replies wait for their score; try again");
    num_waiting_ += count;
    waiting_.push_back({std::move(replies), {}});
    scores = waiting_.back().scores.get_future();
  }
  work_.notify_one();
  return scores;
}

void ScoreLoop::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  work_.notify_one();
}

void ScoreLoop::run() {
  for (;;) {
    std::vector<Waiting> batch;
    {
      std::unique_lock lock(mutex_);
      work_.wait(lock, [&] { return stopping_ || !waiting_.empty(); });
      if (stopping_) break;
      for (int64_t replies = 0; !waiting_.empty() && replies < kBatch;) {
        replies += std::ssize(waiting_.front().replies);
        num_waiting_ -= std::ssize(waiting_.front().replies);
        batch.push_back(std::move(waiting_.front()));
        waiting_.pop_front();
      }
    }
    score(batch);
  }
  const std::lock_guard lock(mutex_);
  for (Waiting& waiting : waiting_)
    waiting.scores.set_exception(std::make_exception_ptr(ShuttingDown("the server is shutting down")));
  waiting_.clear();
}

void ScoreLoop::score(std::vector<Waiting>& batch) const {
  std::vector<TrajectoryPtr> all;
  for (const Waiting& waiting : batch) all.insert(all.end(), waiting.replies.begin(), waiting.replies.end());
  try {
    const std::vector<float> scores = model_.score(all);
    auto next = scores.begin();
    for (Waiting& waiting : batch) {
      const auto end = next + std::ssize(waiting.replies);
      waiting.scores.set_value({next, end});
      next = end;
    }
  } catch (...) {
    for (Waiting& waiting : batch) waiting.scores.set_exception(std::current_exception());
  }
}

}  // namespace tandem
