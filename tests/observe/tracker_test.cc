#include "observe/tracker.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "base/error.h"
#include "temp_folder.h"

namespace tandem {
namespace {

Metrics loss(double value) {
  Metrics metrics;
  metrics.set("actor/pg_loss", value);
  return metrics;
}

Tracker make(std::vector<std::string> names, const TempFolder& folder, std::optional<int64_t> resume_step = {}) {
  return make_tracker({std::move(names), folder.path(), "pro/ject", "exp", {}, resume_step});
}

TEST(Tracker, ConsoleLine) {
  Metrics metrics;
  metrics.set("actor/lr", 1e-6);
  metrics.set("perf/total_num_tokens", 12345678);
  metrics.set("timing_s/gen", 12.3456789);
  metrics.set("x", std::nan(""));
  metrics.set("y", INFINITY);
  EXPECT_EQ(console_line(12, metrics),
            "step:12 - actor/lr:1e-06 - perf/total_num_tokens:12345678 - timing_s/gen:12.3457 - x:nan - y:inf");
}

TEST(Tracker, ConsoleGoesToStdout) {
  const TempFolder folder;
  auto tracker = make({"console"}, folder);
  testing::internal::CaptureStdout();
  tracker.log(1, loss(0.5));
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "step:1 - actor/pg_loss:0.5\n");
  EXPECT_FALSE(std::filesystem::exists(folder / "metrics.jsonl"));
}

TEST(Tracker, FileAppendsAndIsCutOnResume) {
  const TempFolder folder;
  {
    auto tracker = make({"file"}, folder);
    for (const int step : {1, 2, 3}) tracker.log(step, loss(step));
  }
  auto tracker = make({"file", "file"}, folder, 2);
  tracker.log(3, loss(0.25));
  EXPECT_EQ(
      slurp(folder / "metrics.jsonl"),
      "{\"step\":1,\"actor/pg_loss\":1}\n{\"step\":2,\"actor/pg_loss\":2}\n{\"step\":3,\"actor/pg_loss\":0.25}\n");
}

TEST(Tracker, UnknownNamesAreRefused) {
  const TempFolder folder;
  try {
    make({"console", "wandbb"}, folder);
    FAIL();
  } catch (const ConfigError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("'wandbb'"), std::string::npos);
    EXPECT_NE(text.find("console, file, tensorboard"), std::string::npos);
  }
}

TEST(Tracker, TensorboardFolders) {
  const TempFolder folder;
  ::unsetenv("TENSORBOARD_DIR");
  make({"tensorboard"}, folder).log(1, loss(1));
  EXPECT_FALSE(std::filesystem::is_empty(folder / "tensorboard/pro_ject/exp"));
  ::setenv("TENSORBOARD_DIR", (folder / "chosen").c_str(), 1);
  make({"tensorboard"}, folder).log(1, loss(1));
  ::unsetenv("TENSORBOARD_DIR");
  EXPECT_FALSE(std::filesystem::is_empty(folder / "chosen"));
}

class FullDisk : public MetricSink {
 public:
  FullDisk(std::vector<int64_t>* written, const bool* full) : written_(written), full_(full) {}
  void log(int64_t step, const Metrics&) override {
    if (*full_) throw IoError("cannot write metrics.jsonl: No space left on device");
    written_->push_back(step);
  }

 private:
  std::vector<int64_t>* written_;
  const bool* full_;
};

TEST(Tracker, WhatADiskDoesNotTakeWaits) {
  std::vector<int64_t> first, second;
  bool full = false;
  const bool never = false;
  std::vector<std::unique_ptr<MetricSink>> sinks;
  sinks.push_back(std::make_unique<FullDisk>(&first, &full));
  sinks.push_back(std::make_unique<FullDisk>(&second, &never));
  Tracker tracker(std::move(sinks));
  testing::internal::CaptureStderr();
  for (int64_t step = 1; step <= 5; ++step) {
    full = step == 2 || step == 3;
    tracker.log(step, loss(0));
  }
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(first, (std::vector<int64_t>{1, 2, 3, 4, 5}));
  EXPECT_EQ(second, (std::vector<int64_t>{1, 2, 3, 4, 5}));
  EXPECT_EQ(said.find("No space left"), said.rfind("No space left")) << said;  // once
  EXPECT_NE(said.find("No space left"), said.npos);
}

}  // namespace
}  // namespace tandem
