#include "reward/server.h"

#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/child_process.h"
#include "base/error.h"
#include "data/expect_error.h"
#include "reward/http_connection.h"

namespace tandem {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

// reward_server.py in a process of its own.
class TestServer {
 public:
  TestServer() : process_({"python3", TANDEM_TEST_DATA "/../reward/reward_server.py"}) {
    std::vector<std::string> lines;
    for (int i = 0; i < 2000 && lines.empty() && process_.receive(&lines); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    if (lines.empty()) throw std::runtime_error("the test server did not start");
    origin_ = "http://127.0.0.1:" + lines.front();
  }

  RewardServerOptions options(const std::string& path = "/classify") const {
    RewardServerOptions made{.endpoint = origin_ + path, .timeout_seconds = 20, .retry_pause_seconds = 0.001};
    if (path == "/generate" || path == "/v1/chat/completions") {
      made.prompt_template = "Judge [[{response}]]. ";
      made.score_regex = "Score: (\\S+)";
    }
    return made;
  }
  json stats() const { return json::parse(HttpConnection(origin_, "").post("/stats", "{}", 10).body); }
  const std::string& origin() const { return origin_; }
  void kill() { process_.stop(); }

 private:
  ChildProcess process_;
  std::string origin_;
};

std::vector<RewardRequest> requests(const std::vector<std::string>& solutions) {
  std::vector<RewardRequest> made;
  for (size_t i = 0; i < solutions.size(); ++i)
    made.push_back({.data_source = "src",
                    .solution_str = solutions[i],
                    .prompt_id = 7,
                    .sample_index = static_cast<uint32_t>(i),
                    .messages = {{"user", "2+2?"}}});
  return made;
}

class RewardServer : public testing::Test {
 protected:
  static void SetUpTestSuite() { server_ = std::make_unique<TestServer>(); }
  static void TearDownTestSuite() { server_.reset(); }

  // Sample 1 of four meets the fault; the error names it, the endpoint and the reason.
  static void expect_fault(const std::string& fault, const std::string& reason, RewardServerOptions options) {
    ServerReward reward(options);
    expect_error<DataError>(
        [&] {
          reward.score(requests({"1", fault, "0", "0"}));
        },
        {"sample 1 of prompt 7", options.endpoint, reason});
    EXPECT_EQ(reward.score(requests({"0.5"}))[0].score, 0.5) << "after " << fault;
  }

  static std::unique_ptr<TestServer> server_;
};
std::unique_ptr<TestServer> RewardServer::server_;

TEST_F(RewardServer, EveryProtocolGivesEachSampleItsScore) {
  for (const char* path : {"/classify", "/pooling", "/score", "/generate", "/v1/chat/completions"}) {
    ServerReward reward(server_->options(path));
    const auto results = reward.score(requests({"1", "-0.25", "3e2"}));
    ASSERT_EQ(results.size(), 3u);
    EXPECT_EQ(results[0].score, 1) << path;
    EXPECT_EQ(results[1].score, -0.25) << path;
    EXPECT_EQ(results[2].score, 300) << path;
    EXPECT_TRUE(reward.score({}).empty());
  }
}

// REW-3: (a) null, (b) NaN, (c) HTML, (e) more or fewer scores than samples, (g) text; (d) and (f) follow.
TEST_F(RewardServer, NothingBecomesASilentZero) {
  const auto options = server_->options();
  expect_fault("null", "'null', no number", options);
  expect_fault("nan", "not JSON", options);
  expect_fault("text", "no number", options);
  expect_fault("html", "not JSON: '<html><body> Log in", options);
  expect_fault("none", "0 results for 1 sample", options);
  expect_fault("two", "2 results for 1 sample", options);
  expect_fault("huge", "larger than 8 MiB", options);
  expect_fault("404", "HTTP 404 'no luck'", options);
  expect_fault("302", "HTTP 302", options);
  expect_fault("none", "0 results for 1 sample", server_->options("/v1/chat/completions"));
  expect_fault("unclear", "no finite number", server_->options("/v1/chat/completions"));
}

TEST_F(RewardServer, AFaultThatPassesIsRetried) {
  ServerReward reward(server_->options());
  const auto results = reward.score(requests({"once-503 0.5", "once-closed 0.25", "once-429 2", "1"}));
  EXPECT_EQ(results[0].score, 0.5);
  EXPECT_EQ(results[1].score, 0.25);
  EXPECT_EQ(results[2].score, 2);
  const Metrics metrics = reward.take_metrics();
  EXPECT_EQ(metrics.get("reward_server/requests"), 7);
  EXPECT_EQ(metrics.get("reward_server/retries"), 3);
  EXPECT_TRUE(reward.take_metrics().empty());
}

TEST_F(RewardServer, AFaultThatStaysEndsAfterTheRetries) {
  expect_fault("503", "4 tries in", server_->options());
  expect_fault("closed", "4 tries in", server_->options());
  auto options = server_->options();
  options.max_retries = 0;
  const int64_t before = server_->stats()["requests"];
  expect_fault("503", "1 tries in", options);
  EXPECT_EQ(server_->stats()["requests"], before + 5);  // four samples and the one afterwards
}

TEST_F(RewardServer, SlowAndDrippingRepliesEndAtTheTimeLimit) {
  auto options = server_->options();
  options.timeout_seconds = 0.3;
  options.max_retries = 1;
  const auto begin = Clock::now();
  expect_fault("sleep", "no whole reply within 0.3 s", options);
  expect_fault("drip", "no whole reply within 0.3 s", options);
  options.timeout_seconds = 20;
  options.max_retries = 100;
  options.sample_timeout_seconds = 0.3;
  expect_fault("sleep", "no whole reply within 0.3 s", options);
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(10));
}

TEST_F(RewardServer, AllSamplesAreUnderWayAtOnce) {
  TestServer server;
  ServerReward reward(server.options());
  std::vector<std::string> solutions;
  for (int i = 0; i < 64; ++i) solutions.push_back("wait-64 " + std::to_string(i));
  const auto results = reward.score(requests(solutions));  // the first reply comes when the 64th request is there
  for (int i = 0; i < 64; ++i) EXPECT_EQ(results[static_cast<size_t>(i)].score, i);
  EXPECT_EQ(server.stats()["max_in_flight"], 64);
  EXPECT_EQ(reward.take_metrics().get("reward_server/max_in_flight"), 64);
}

TEST_F(RewardServer, ConnectionsAreBoundedAndReused) {
  TestServer server;
  auto options = server.options();
  options.max_concurrent = 3;
  options.api_key = "secret";
  {
    ServerReward reward(options);
    reward.score(requests(std::vector<std::string>(50, "1")));
    reward.score(requests(std::vector<std::string>(50, "1")));
  }
  const json stats = server.stats();
  EXPECT_EQ(stats["requests"], 100);
  EXPECT_LE(stats["max_in_flight"], 3);
  EXPECT_LE(stats["connections"], 3 + 2);  // one asked whether it is there, one for these numbers
  EXPECT_EQ(stats["authorization"], "Bearer secret");
}

TEST_F(RewardServer, WorkBeginsWithTheSubmission) {
  TestServer server;
  ServerReward reward(server.options());
  auto early = reward.submit(requests({"wait-2 1"})[0]);
  while (server.stats()["requests"] == 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  auto late = reward.submit(requests({"2"})[0]);
  EXPECT_EQ(early.get().score, 1);
  EXPECT_EQ(late.get().score, 2);
}

TEST_F(RewardServer, ReportsLatencies) {
  ServerReward reward(server_->options());
  reward.score(requests(std::vector<std::string>(20, "1")));
  const Metrics metrics = reward.take_metrics();
  const auto p50 = metrics.get("reward_server/latency_s/p50"), p95 = metrics.get("reward_server/latency_s/p95");
  const auto p99 = metrics.get("reward_server/latency_s/p99"), most = metrics.get("reward_server/latency_s/max");
  ASSERT_TRUE(p50 && p95 && p99 && most);
  EXPECT_GT(*p50, 0);
  EXPECT_LE(*p50, *p95);
  EXPECT_LE(*p95, *p99);
  EXPECT_LE(*p99, *most);
  EXPECT_EQ(metrics.get("reward_server/requests"), 20);
}

TEST_F(RewardServer, IsNotWaitedForWhenTheRunEnds) {
  const auto begin = Clock::now();
  {
    ServerReward reward(server_->options());
    for (const auto& request : requests({"sleep", "drip", "503", "sleep"})) reward.submit(request);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(5));
}

TEST_F(RewardServer, OneThatIsNotThereIsAnErrorBeforeAnyScore) {
  TestServer server;
  const auto options = server.options();
  ServerReward reward(options);
  EXPECT_EQ(reward.score(requests({"1"}))[0].score, 1);
  server.kill();
  expect_error<DataError>([&] { reward.score(requests({"1"})); }, {"sample 0", options.endpoint, "cannot connect"});
  expect_error<IoError>([&] { ServerReward{options}; }, {server.origin(), "cannot connect", "endpoint"});
  expect_error<IoError>([&] { make_reward({.server = options}); }, {server.origin()});
}

}  // namespace
}  // namespace tandem
