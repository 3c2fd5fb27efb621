#include "observe/run_log.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/log.h"
#include "temp_folder.h"

namespace tandem {
namespace {

using nlohmann::json;

TEST(RunLog, HoldsEventsWarningsAndErrors) {
  const TempFolder folder;
  const auto path = folder / "log.jsonl";
  testing::internal::CaptureStderr();
  log_warn("before");
  {
    RunLog log(path);
    log.event("start", "info", "started");
    log_warn("the \"rewards\" are slow");
    log_info("not kept");
    log_error("broken");
  }
  log_warn("after");
  testing::internal::GetCapturedStderr();
  std::vector<json> lines;
  std::istringstream text(slurp(path));
  for (std::string line; std::getline(text, line);) lines.push_back(json::parse(line));
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0]["event"], "start");
  EXPECT_EQ(lines[0]["level"], "info");
  EXPECT_EQ(lines[1]["level"], "warning");
  EXPECT_EQ(lines[1]["text"], "the \"rewards\" are slow");
  EXPECT_FALSE(lines[1].contains("event"));
  EXPECT_EQ(lines[2]["level"], "error");
  EXPECT_GT(lines[0]["time"].get<double>(), 1.6e9);
}

}  // namespace
}  // namespace tandem
