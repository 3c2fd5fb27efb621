#include "reward/server.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/error.h"
#include "base/rng.h"
#include "reward/http_connection.h"

namespace tandem {
namespace {

using Seconds = std::chrono::duration<double>;

constexpr double kLongestPause = 30;
constexpr std::chrono::milliseconds kWatchEvery{50};

bool worth_another_try(const HttpReply& reply) {
  return !reply.failure.empty() || reply.status == 408 || reply.status == 425 || reply.status == 429 ||
         reply.status >= 500;
}

std::string told(const HttpReply& reply) {
  return reply.failure.empty() ? fmt::format("HTTP {} {}", reply.status, quoted_start(reply.body)) : reply.failure;
}

// Samples that failed together do not come back together: up to half of the pause is drawn by the sample's name.
double pause_before(size_t retry, double first, const RewardRequest& request, double asked_for) {
  const double whole = std::min(first * std::exp2(static_cast<double>(retry)), kLongestPause);
  Philox random(request.prompt_id, (uint64_t{request.sample_index} << 32) + retry);
  return std::max(whole * (0.5 + 0.5 * random.uniform()), std::min(asked_for, kLongestPause));
}

// Nearest rank.
double percentile(const std::vector<double>& sorted, double share) {
  const auto rank = static_cast<size_t>(std::ceil(share * static_cast<double>(sorted.size())));
  return sorted[std::max<size_t>(rank, 1) - 1];
}

}  // namespace

struct ServerReward::Worker {
  Worker(const std::string& origin, const std::string& token) : connection(origin, token) {}

  HttpConnection connection;
  bool busy = false;           // in a post()
  Clock::time_point deadline;  // of that post()
  std::thread thread;
};

ServerReward::ServerReward(const RewardServerOptions& options) : options_(options), protocol_(options) {
  check_reachable();
  watchdog_ = std::thread([this] { watch(); });
}

ServerReward::~ServerReward() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    queue_.clear();
  }
  work_.notify_all();
  stopped_.notify_all();
  watchdog_.join();
  for (const auto& worker : workers_) worker->thread.join();
}

void ServerReward::check_reachable() {
  HttpConnection connection(protocol_.endpoint().origin, options_.api_key);
  std::string reason;
  for (size_t attempt = 0; attempt <= options_.max_retries; ++attempt) {
    if (attempt > 0) pause(pause_before(attempt - 1, options_.retry_pause_seconds, {}, 0));
    reason = connection.try_to_connect(options_.timeout_seconds);
    if (reason.empty()) return;
  }
  throw IoError(fmt::format("reward server {}: {}; start it, or correct reward.reward_model.endpoint",
                            protocol_.endpoint().origin, reason));
}

std::future<RewardResult> ServerReward::submit(RewardRequest request) {
  std::future<RewardResult> result;
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back({std::move(request), {}});
    result = queue_.back().result.get_future();
    if (queue_.size() > num_idle_ && workers_.size() < options_.max_concurrent) {
      workers_.push_back(std::make_unique<Worker>(protocol_.endpoint().origin, options_.api_key));
      Worker& worker = *workers_.back();
      worker.thread = std::thread([this, &worker] { serve(worker); });
    }
  }
  work_.notify_one();
  return result;
}

void ServerReward::serve(Worker& worker) {
  std::unique_lock lock(mutex_);
  for (;;) {
    ++num_idle_;
    work_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
    --num_idle_;
    if (stopping_) return;
    {
      Job job = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      try {
        job.result.set_value(answer(worker, job.request));
      } catch (...) {
        job.result.set_exception(std::current_exception());
      }
    }
    lock.lock();
  }
}

RewardResult ServerReward::answer(Worker& worker, const RewardRequest& request) {
  const std::string body = protocol_.request_body(request);
  const auto begin = Clock::now();
  for (size_t attempt = 0;; ++attempt) {
    const auto sent = Clock::now();
    const double left = options_.sample_timeout_seconds - Seconds(sent - begin).count();
    const double limit = std::min(options_.timeout_seconds, left);
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) fail(request, "the run ends");
      worker.busy = true;
      worker.deadline = sent + std::chrono::duration_cast<Clock::duration>(Seconds(limit));
      tally_.max_in_flight = std::max(tally_.max_in_flight, ++num_in_flight_);
      ++tally_.num_requests;
      if (attempt > 0) ++tally_.num_retries;
    }
    HttpReply reply = worker.connection.post(protocol_.endpoint().path, body, limit);
    const auto now = Clock::now();
    if (!reply.failure.empty() && Seconds(now - sent).count() > 0.95 * limit)
      reply.failure = fmt::format("no whole reply within {:.3g} s", limit);
    {
      const std::lock_guard lock(mutex_);
      worker.busy = false;
      --num_in_flight_;
      if (reply.status == 200) tally_.latencies.push_back(Seconds(now - sent).count());
    }
    if (reply.failure.empty() && reply.status == 200) {
      try {
        return {protocol_.score(request, reply.body), {}};
      } catch (const DataError& error) {
        fail(request, error.what());
      }
    }
    if (!worth_another_try(reply)) fail(request, told(reply) + "; check reward.reward_model.* and the server's log");
    const double wait = pause_before(attempt, options_.retry_pause_seconds, request, reply.retry_after);
    const bool time_is_up = Seconds(now - begin).count() + wait >= options_.sample_timeout_seconds;
    if (attempt == options_.max_retries || time_is_up)
      fail(request, fmt::format("{} tries in {:.1f} s, the last one: {}", attempt + 1, Seconds(now - begin).count(),
                                told(reply)));
    if (!pause(wait)) fail(request, "the run ends");
  }
}

bool ServerReward::pause(double seconds) {
  std::unique_lock lock(mutex_);
  return !stopped_.wait_for(lock, Seconds(seconds), [&] { return stopping_; });
}

void ServerReward::fail(const RewardRequest& request, const std::string& reason) const {
  throw DataError(fmt::format("reward of {} from {}: {}", sample_name(request), options_.endpoint, reason));
}

// Time limits in the HTTP library are for each wait, so a server that sends a byte now and then would never meet them.
void ServerReward::watch() {
  std::unique_lock lock(mutex_);
  for (;;) {
    stopped_.wait_for(lock, kWatchEvery, [&] { return stopping_ && num_in_flight_ == 0; });
    if (stopping_ && num_in_flight_ == 0) return;
    std::vector<Worker*> late;
    for (const auto& worker : workers_)
      if (worker->busy && (stopping_ || worker->deadline < Clock::now())) late.push_back(worker.get());
    lock.unlock();
    for (Worker* worker : late) worker->connection.abort();  // outside the lock: it may wait for a connect to end
    if (!late.empty()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    lock.lock();
  }
}

Metrics ServerReward::take_metrics() {
  Tally tally;
  {
    const std::lock_guard lock(mutex_);
    std::swap(tally, tally_);
  }
  Metrics metrics;
  if (tally.num_requests == 0) return metrics;
  std::sort(tally.latencies.begin(), tally.latencies.end());
  if (!tally.latencies.empty()) {
    metrics.set("reward_server/latency_s/p50", percentile(tally.latencies, 0.50));
    metrics.set("reward_server/latency_s/p95", percentile(tally.latencies, 0.95));
    metrics.set("reward_server/latency_s/p99", percentile(tally.latencies, 0.99));
    metrics.set("reward_server/latency_s/max", tally.latencies.back());
  }
  metrics.set("reward_server/requests", static_cast<double>(tally.num_requests));
  metrics.set("reward_server/retries", static_cast<double>(tally.num_retries));
  metrics.set("reward_server/max_in_flight", static_cast<double>(tally.max_in_flight));
  return metrics;
}

}  // namespace tandem
