#include "observe/bridge.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "temp_folder.h"

namespace tandem {
namespace {

using nlohmann::json;
using namespace std::chrono_literals;

// A module that stands in for wandb: it writes what it is told to $SEEN, and does to itself what $DO says.
constexpr const char* kFake = R"python(
import json, os, signal, time
def tell(**what):
    with open(os.environ["SEEN"], "a") as file:
        file.write(json.dumps(what) + "\n")
if os.environ.get("DO") == "break":
    raise RuntimeError("broken on import")
class Run:
    url = "https://example.test/run"
def init(**options):
    tell(init=options)
    if os.environ.get("DO") == "refuse":
        raise ValueError("no account\nhere")
    return Run()
def log(metrics, step):
    do = os.environ.get("DO")
    if do == "crash" and step == 2:
        os.kill(os.getpid(), signal.SIGSEGV)
    if do == "hang" and step == 2:
        time.sleep(600)
    tell(step=step, metrics=metrics)
def finish():
    tell(finish=True)
)python";

class Bridge : public testing::Test {
 protected:
  Bridge() {
    std::filesystem::create_directories(folder_ / "python");
    spill(folder_ / "python/wandb.py", kFake);
    ::setenv("PYTHONPATH", (folder_ / "python").c_str(), 1);
    ::setenv("SEEN", (folder_ / "seen").c_str(), 1);
    ::unsetenv("DO");
    set_log_listener([this](LogLevel, std::string_view text) { warnings_.emplace_back(text); });
    options_.service = "wandb";
    options_.project = "p";
    options_.experiment = "e";
    options_.folder = folder_ / "run";
    options_.config = {{"a.b", "1"}};
  }
  ~Bridge() override {
    set_log_listener({});
    ::unsetenv("PYTHONPATH");
    ::unsetenv("DO");
  }

  static Metrics loss(double value) {
    Metrics metrics;
    metrics.set("actor/pg_loss", value);
    return metrics;
  }
  void log_steps(int count) {
    BridgeSink sink(options_);
    for (int step = 1; step <= count; ++step) sink.log(step, loss(0.5 * step));
  }
  std::vector<json> seen() const {
    std::vector<json> lines;
    std::istringstream text(slurp(folder_ / "seen"));
    for (std::string line; std::getline(text, line);) lines.push_back(json::parse(line));
    return lines;
  }
  void expect_one_warning(std::string_view part) const {
    ASSERT_EQ(warnings_.size(), 1u);
    EXPECT_NE(warnings_[0].find(part), std::string::npos) << warnings_[0];
    EXPECT_EQ(warnings_[0].find('\n'), std::string::npos) << warnings_[0];
  }

  TempFolder folder_;
  BridgeOptions options_;
  std::vector<std::string> warnings_;
};

TEST_F(Bridge, HandsEverythingOver) {
  log_steps(3);
  const auto lines = seen();
  ASSERT_EQ(lines.size(), 5u);
  EXPECT_EQ(lines[0]["init"]["project"], "p");
  EXPECT_EQ(lines[0]["init"]["name"], "e");
  EXPECT_EQ(lines[0]["init"]["config"], json({{"a.b", "1"}}));
  EXPECT_EQ(lines[2], json({{"step", 2}, {"metrics", {{"actor/pg_loss", 1.0}}}}));
  EXPECT_EQ(lines[4], json({{"finish", true}}));
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(Bridge, AResumedRunKeepsItsName) {
  log_steps(1);
  options_.resume = true;
  log_steps(1);
  options_.resume = false;
  log_steps(1);
  const auto lines = seen();
  ASSERT_EQ(lines.size(), 9u);
  EXPECT_EQ(lines[3]["init"]["id"], lines[0]["init"]["id"]);
  EXPECT_NE(lines[6]["init"]["id"], lines[0]["init"]["id"]);
}

TEST_F(Bridge, NumbersThatAreNotFiniteArrive) {
  {
    BridgeSink sink(options_);
    sink.log(1, loss(std::nan("")));
  }
  EXPECT_NE(slurp(folder_ / "seen").find("\"actor/pg_loss\": NaN"), std::string::npos);
}

TEST_F(Bridge, AMissingPackageIsOneLine) {
  options_.service = "swanlab";
  log_steps(2);
  expect_one_warning("swanlab gets no more metrics: the Python package swanlab is not installed");
}

TEST_F(Bridge, ARefusalIsOneLine) {
  ::setenv("DO", "refuse", 1);
  log_steps(2);
  expect_one_warning("ValueError: no account here");
}

TEST_F(Bridge, ABrokenPackageIsOneLine) {
  ::setenv("DO", "break", 1);
  log_steps(2);
  expect_one_warning("RuntimeError: broken on import");
}

TEST_F(Bridge, ACrashIsOneLine) {
  ::setenv("DO", "crash", 1);
  log_steps(50);
  expect_one_warning("signal 11");
  EXPECT_EQ(seen().size(), 2u);  // init and step 1
}

TEST_F(Bridge, AHangNeitherBlocksNorLasts) {
  ::setenv("DO", "hang", 1);
  options_.most_queued = 10;
  options_.finish_limit = 300ms;
  const Metrics wide = [] {
    Metrics metrics;
    for (int i = 0; i < 2000; ++i) metrics.set("metric/" + std::to_string(i), i);
    return metrics;
  }();
  const auto begin = std::chrono::steady_clock::now();
  {
    BridgeSink sink(options_);
    for (int step = 1; step <= 200; ++step) sink.log(step, wide);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 2s);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 10s);
  ASSERT_EQ(warnings_.size(), 2u);
  EXPECT_NE(warnings_[0].find("wandb does not keep up"), std::string::npos) << warnings_[0];
  EXPECT_NE(warnings_[1].find("has not finished within 0.3 s"), std::string::npos) << warnings_[1];
}

TEST_F(Bridge, NoPythonIsOneLine) {
  ::setenv("TANDEM_PYTHON", "/nowhere/python", 1);
  log_steps(1);
  ::unsetenv("TANDEM_PYTHON");
  expect_one_warning("cannot start /nowhere/python");
}

}  // namespace
}  // namespace tandem
