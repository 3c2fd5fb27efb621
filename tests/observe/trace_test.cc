#include "observe/trace.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "observe/timing.h"
#include "temp_folder.h"

namespace tandem {
namespace {

using nlohmann::json;
using namespace std::chrono_literals;

std::vector<json> spans(const json& trace) {
  std::vector<json> out;
  for (const json& event : trace["traceEvents"])
    if (event["ph"] != "M") out.push_back(event);
  return out;
}

json written(const TraceRecorder& trace) {
  const TempFolder folder;
  trace.write(folder / "t.json");
  return json::parse(slurp(folder / "t.json"));
}

TEST(Trace, PhasesNestAndWorkBelongsToTheInnermost) {
  TraceRecorder trace(3);
  const auto zero = TraceRecorder::Clock::now();
  trace.open("step", zero);
  trace.open("gen", zero + 1ms);
  trace.work_done(7);
  trace.close("gen", zero + 5ms);
  trace.open("update_actor", zero + 6ms);
  trace.close("update_actor", zero + 9ms);
  trace.close("step", zero + 10ms);
  trace.close("never opened", zero + 10ms);
  Metrics arguments;
  arguments.set("tokens", 64);
  trace.span("scheduler", "decode", zero + 2ms, zero + 3ms, arguments);

  const json whole = written(trace);
  EXPECT_EQ(whole["otherData"]["step"], 3);
  std::map<std::string, json> by_name;
  for (const json& event : spans(whole)) by_name[event["name"]] = event;
  ASSERT_EQ(by_name.size(), 5u);
  const double start = by_name["step"]["ts"];
  EXPECT_GE(start, 0);
  EXPECT_NEAR(by_name["step"]["dur"], 10'000, 1e-6);
  EXPECT_NEAR(by_name["gen"]["ts"].get<double>() - start, 1000, 1e-6);
  EXPECT_NEAR(by_name["gen"]["dur"], 4000, 1e-6);
  EXPECT_EQ(by_name["gen"]["tid"], by_name["update_actor"]["tid"]);
  EXPECT_EQ(by_name["response"]["ph"], "i");
  EXPECT_EQ(by_name["response"]["args"]["tokens"], 7);
  EXPECT_EQ(by_name["decode"]["args"]["tokens"], 64);
  // The outer one first: viewers nest by order.
  EXPECT_EQ(spans(whole)[0]["name"], "step");
}

TEST(Trace, MicroBatchesFollowEachOther) {
  TraceRecorder trace(1);
  trace.work_done(1);  // outside of a phase: nothing
  trace.open("update_actor", TraceRecorder::Clock::now());
  trace.work_done(100);
  trace.work_done(50);
  const auto events = spans(written(trace));
  ASSERT_EQ(events.size(), 3u);  // the open phase ends at the time of writing
  std::vector<json> work;
  for (const json& event : events)
    if (event["name"] == "update_actor micro-batch") work.push_back(event);
  ASSERT_EQ(work.size(), 2u);
  EXPECT_NEAR(work[0]["ts"].get<double>() + work[0]["dur"].get<double>(), work[1]["ts"].get<double>(), 1e-3);
}

TEST(Trace, RanksShareOneClock) {
  TraceRecorder first(4), second(4, first.start(), 1);
  const auto at = first.start() + 7ms;
  first.span("collectives", "sum", at, at + 2ms);
  second.span("collectives", "sum", at + 1ms, at + 2ms);
  first.add_events(second.events());
  const auto events = spans(written(first));
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0]["pid"], 0);
  EXPECT_EQ(events[1]["pid"], 1);
  EXPECT_EQ(events[0]["ts"], 7000);
  EXPECT_EQ(events[1]["ts"], 8000);
}

TEST(Trace, TheTimerDrawsIntoItWhileItIsSet) {
  PhaseTimer timer;
  TraceRecorder trace(1);
  { const auto before = timer.scope("before"); }
  timer.set_trace(&trace);
  {
    const auto step = timer.scope("step");
    const auto gen = timer.scope("gen");
    const auto again = timer.scope("gen");  // inside its own name: one span
  }
  timer.set_trace(nullptr);
  { const auto after = timer.scope("after"); }
  std::vector<std::string> names;
  for (const json& event : spans(written(trace))) names.push_back(event["name"]);
  EXPECT_EQ(names, (std::vector<std::string>{"step", "gen"}));
}

}  // namespace
}  // namespace tandem
