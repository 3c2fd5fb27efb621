// Scores from a reward server over HTTP (server_protocol.h), one request a sample, many at once over kept-alive
// connections. A try that gets no reply, or 408, 425, 429 or 5xx, is repeated after a pause that doubles; everything
// else that is not one finite score is an error at once. An error names sample, endpoint and reason.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "reward/reward.h"
#include "reward/server_protocol.h"

namespace tandem {

class HttpConnection;

class ServerReward final : public RewardFunction {
 public:
  // ConfigError for options it cannot work with; IoError when nothing listens there, after the retries.
  explicit ServerReward(const RewardServerOptions& options);
  ~ServerReward() override;  // gives up what is under way

  std::future<RewardResult> submit(RewardRequest request) override;
  // reward_server/latency_s/{p50,p95,p99,max} of the replies, from sending to the last byte; /requests (tries),
  // /retries, /max_in_flight. Nothing where no request was made.
  Metrics take_metrics() override;

 private:
  using Clock = std::chrono::steady_clock;
  struct Job {
    RewardRequest request;
    std::promise<RewardResult> result;
  };
  struct Worker;
  struct Tally {
    std::vector<double> latencies;  // seconds
    size_t num_requests = 0, num_retries = 0, max_in_flight = 0;
  };

  void check_reachable();
  void serve(Worker& worker);
  void watch();
  RewardResult answer(Worker& worker, const RewardRequest& request);
  bool pause(double seconds);  // false: cut short, the object is going
  [[noreturn]] void fail(const RewardRequest& request, const std::string& reason) const;

  const RewardServerOptions options_;
  const ServerProtocol protocol_;
  std::mutex mutex_;
  std::condition_variable work_, stopped_;
  std::deque<Job> queue_;
  size_t num_idle_ = 0, num_in_flight_ = 0;
  bool stopping_ = false;
  Tally tally_;
  std::vector<std::unique_ptr<Worker>> workers_;  // started as they are needed
  std::thread watchdog_;
};

}  // namespace tandem
