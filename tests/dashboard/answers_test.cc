#include "dashboard/answers.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "dashboard/gpu_meters.h"
#include "dashboard/meters.h"
#include "observe/samples_log.h"
#include "observe/temp_folder.h"

namespace tandem {
namespace {

using nlohmann::json;
using namespace std::chrono_literals;

void write(const std::filesystem::path& path, std::string_view text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::app | std::ios::binary) << text;
}

// Waits until the store has read `rows` rows of the run.
std::shared_ptr<RecordedRun> wait_for(const RunStore& store, const std::string& id, size_t rows) {
  for (int i = 0; i < 500; ++i) {
    const auto run = store.find(id);
    if (run && run->status().rows == rows) return run;
    std::this_thread::sleep_for(10ms);
  }
  ADD_FAILURE() << id << " has not got " << rows << " rows";
  return nullptr;
}

TEST(FindRuns, AreFoldersWithMetrics) {
  const TempFolder folder;
  write(folder / "a/metrics.jsonl", "");
  write(folder / "sweep/b/metrics.jsonl", "");
  write(folder / "a/earlier-1/metrics.jsonl", "");
  write(folder / "a/checkpoints/global_step_2/metrics.jsonl", "");
  write(folder / "no/other.txt", "");
  std::vector<std::string> ids;
  for (const auto& [id, path] : find_runs(folder.path())) ids.push_back(id);
  EXPECT_EQ(ids, (std::vector<std::string>{"a", "a/earlier-1", "sweep/b"}));
  ids.clear();
  for (const auto& [id, path] : find_runs(folder / "a")) ids.push_back(id);
  EXPECT_EQ(ids, (std::vector<std::string>{"a", "earlier-1"}));
  EXPECT_TRUE(find_runs(folder / "absent").empty());
}

TEST(RunStore, FollowsRunsThatComeAndGrow) {
  const TempFolder folder;
  write(folder / "a/metrics.jsonl", "{\"step\":1,\"x\":1}\n{\"step\":2");
  RunStore store({folder.path()}, 10ms);
  wait_for(store, "a", 1);
  const uint64_t before = store.wait(0, 0ms);
  write(folder / "a/metrics.jsonl", ",\"x\":5}\n");
  EXPECT_NE(store.wait(before, 5s), before);
  const auto run = wait_for(store, "a", 2);
  ASSERT_TRUE(run);
  EXPECT_EQ(run->status().last_step, 2);
  write(folder / "b/metrics.jsonl", "{\"step\":1}\n");
  wait_for(store, "b", 1);
  std::filesystem::resize_file(folder / "a/metrics.jsonl", 0);  // begun anew
  wait_for(store, "a", 0);
  EXPECT_EQ(run->status().generation, 1u);
  const auto begin = std::chrono::steady_clock::now();
  store.stop();
  store.wait(store.wait(0, 0ms), 10s);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 5s);
}

TEST(Run, StateComesFromItsLog) {
  const TempFolder folder;
  RecordedRun run("r", folder.path());
  write(folder / "metrics.jsonl", "{\"step\":1}\n");
  write(folder / "log.jsonl", R"({"time":1,"level":"info","event":"start","text":"started"})"
                              "\n"
                              R"({"time":2,"level":"warning","text":"slow"})"
                              "\n"
                              R"({"time":3,"level":"error","event":"failure","text":"no \"level\":\"error\" twice"})"
                              "\n");
  run.poll(1 << 20);
  EXPECT_TRUE(run.status().failed);
  EXPECT_EQ(run.status().warnings, 1u);
  EXPECT_EQ(run.status().errors, 1u);
  write(folder / "log.jsonl", R"({"time":4,"level":"info","event":"start","text":"went on"})"
                              "\n");
  run.poll(1 << 20);
  EXPECT_FALSE(run.status().failed);
  write(folder / "log.jsonl", R"({"time":5,"level":"info","event":"end","text":"finished"})"
                              "\n");
  run.poll(1 << 20);
  EXPECT_TRUE(run.status().finished);
  EXPECT_EQ(json::parse(log_answer(run)).size(), 5u);
  write(folder / "trace_step_10.json", "{}");
  write(folder / "trace_step_2.json", "{}");
  write(folder / "trace_step_x.json", "{}");
  EXPECT_EQ(run.traces(), (std::vector<int64_t>{2, 10}));
}

class Answers : public testing::Test {
 protected:
  Answers() {
    for (int step = 1; step <= 4; ++step) {
      write(folder_ / "a/metrics.jsonl", "{\"step\":" + std::to_string(step) + ",\"x\":" + std::to_string(step * 10) +
                                             (step % 2 == 0 ? ",\"val-core/acc\":0.5" : "") +
                                             ",\"timing_s/step\":2}\n");
      write(folder_ / "b/metrics.jsonl", "{\"step\":" + std::to_string(step + 2) + ",\"x\":1}\n");
    }
    write(folder_ / "a/config.yaml", "actor_rollout_ref:\n  model:\n    path: m\ndata: {n: 1, files: [x, y]}\n");
    store_.emplace(std::vector<std::filesystem::path>{folder_.path()}, 10ms);
    a_ = wait_for(*store_, "a", 4);
    wait_for(*store_, "b", 4);
  }

  TempFolder folder_;
  std::optional<RunStore> store_;
  std::shared_ptr<RecordedRun> a_;
};

TEST_F(Answers, RunsOfAChartShareTheirPieces) {
  const json answer = json::parse(series_answer(*store_, {{"a", "b", "absent"}, {"x", "nothing"}}));
  EXPECT_EQ(answer["x"]["x"], json({1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(answer["x"]["runs"]["a"]["smooth"], json({10, 20, 30, 40, nullptr, nullptr}));
  EXPECT_EQ(answer["x"]["runs"]["b"]["low"], json({nullptr, nullptr, 1, 1, 1, 1}));
  EXPECT_FALSE(answer["x"]["runs"].contains("absent"));
  EXPECT_EQ(answer["nothing"]["x"], json::array());
  EXPECT_TRUE(answer["nothing"]["runs"].empty());
}

TEST_F(Answers, BandsOfTheRunsAskedFor) {
  const json answer = json::parse(
      series_answer(*store_, {.runs = {"a", "b"}, .metrics = {"x"}, .bands = std::vector<std::string>{"b"}}));
  EXPECT_FALSE(answer["x"]["runs"]["a"].contains("low"));
  EXPECT_EQ(answer["x"]["runs"]["a"]["smooth"], json({10, 20, 30, 40, nullptr, nullptr}));
  EXPECT_EQ(answer["x"]["runs"]["b"]["high"], json({nullptr, nullptr, 1, 1, 1, 1}));
}

TEST_F(Answers, SeriesByTimeAndInARange) {
  const json by_time =
      json::parse(series_answer(*store_, {.runs = {"a"}, .metrics = {"x"}, .pieces = 4, .by_time = true}));
  EXPECT_EQ(by_time["x"]["width"], 2);  // seconds 2, 4, 6, 8
  EXPECT_EQ(by_time["x"]["x"], json({3, 5, 7, 9}));
  EXPECT_EQ(by_time["x"]["runs"]["a"]["high"], json({10, 20, 30, 40}));
  const json part = json::parse(series_answer(*store_, {.runs = {"a"}, .metrics = {"x"}, .begin = 2, .end = 3}));
  EXPECT_EQ(part["x"]["x"], json({2, 3}));
  const json nothing = json::parse(series_answer(*store_, {.runs = {"a"}, .metrics = {"x"}, .begin = 100}));
  EXPECT_EQ(nothing["x"]["x"], json::array());
}

TEST_F(Answers, RowsWithAPrefix) {
  const json rows = json::parse(rows_answer(*a_, "val-", 10));
  EXPECT_EQ(rows, json::parse(R"({"steps":[2,4],"columns":{"val-core/acc":[0.5,0.5]}})"));
  EXPECT_EQ(json::parse(rows_answer(*a_, "x", 1))["steps"], json({4}));
}

TEST_F(Answers, ConfigAsDottedKeys) {
  EXPECT_EQ(json::parse(config_answer(*a_)),
            json::parse(R"([["actor_rollout_ref.model.path","m"],["data.n","1"],["data.files","[x, y]"]])"));
  EXPECT_EQ(config_answer(*store_->find("b")), "[]");
}

TEST_F(Answers, RunsWithWhatTheyHave) {
  const json runs = json::parse(runs_answer(*store_))["runs"];
  ASSERT_EQ(runs.size(), 2u);
  EXPECT_EQ(runs[0]["id"], "a");
  EXPECT_EQ(runs[0]["rows"], 4);
  EXPECT_EQ(runs[0]["last_step"], 4);
  EXPECT_EQ(runs[0]["seconds"], 8);
  EXPECT_EQ(runs[0]["state"], "open");
  EXPECT_EQ(runs[0]["metrics"], json({"x", "timing_s/step", "val-core/acc"}));
  EXPECT_GT(runs[0]["updated"], 1'500'000'000);
}

TEST_F(Answers, PrometheusGroupsByName) {
  const std::string text = prometheus_answer(*store_);
  EXPECT_NE(text.find("# TYPE tandem_x gauge\ntandem_x{run=\"a\"} 40\ntandem_x{run=\"b\"} 1\n"), text.npos) << text;
  EXPECT_NE(text.find("tandem_val_core_acc{run=\"a\"} 0.5\n"), text.npos);
  EXPECT_NE(text.find("tandem_step{run=\"b\"} 6\n"), text.npos);
}

TEST_F(Answers, SamplesInPagesAndOneWithItsTokens) {
  SampleRecord record;
  record.prompt = std::string(390, 'p') + "ääääääääää";
  record.response = "<b>hi</b>";
  record.response_ids = {5, 6};
  record.logprobs = {-1, -2};
  record.stop_reason = "stop";
  {
    SamplesLog log(folder_ / "a/samples.jsonl");
    for (record.step = 1; record.step <= 3; ++record.step) log.append(record);
  }
  const json page = json::parse(samples_answer(*a_, {.last_step = 2}, 1, 5));
  EXPECT_EQ(page["total"], 3);
  EXPECT_EQ(page["found"], 2);
  EXPECT_EQ(page["complete"], true);
  ASSERT_EQ(page["items"].size(), 1u);
  EXPECT_EQ(page["items"][0]["step"], 1);
  EXPECT_EQ(page["items"][0]["tokens"], 2);
  EXPECT_EQ(page["items"][0]["prompt"], std::string(390, 'p') + "äääää…");  // never a part of a character
  std::string asked_for;
  const TokenTexts texts = [&](const std::string& model, const std::vector<int32_t>& ids) {
    asked_for = model;
    return std::optional<std::vector<std::string>>{std::vector<std::string>(ids.size(), "t")};
  };
  const json sample = json::parse(*sample_answer(*a_, 2, texts));
  EXPECT_EQ(sample["step"], 3);
  EXPECT_EQ(sample["response"], "<b>hi</b>");
  EXPECT_EQ(sample["token_texts"], json({"t", "t"}));
  EXPECT_EQ(asked_for, "m");
  EXPECT_EQ(sample["prompt_key"], page["items"][0]["prompt_key"]);
  EXPECT_FALSE(sample_answer(*a_, 3, texts));
  EXPECT_FALSE(json::parse(*sample_answer(*a_, 0, {})).contains("token_texts"));
}

TEST(Meters, CountBusyTicks) {
  const CpuTicks ticks = parse_cpu_ticks("cpu  10 20 30 400 50 6 7 8 9 10\ncpu0 1 2 3 4\n");
  EXPECT_EQ(ticks.all, 531u);
  EXPECT_EQ(ticks.busy, 81u);
  EXPECT_EQ(parse_cpu_ticks("").all, 0u);
}

TEST(GpuMeters, ReadWhatTheDriverTells) {
  EXPECT_FALSE(load_nvml("libabsent.so.1"));
  EXPECT_FALSE(load_nvml("libm.so.6"));  // there, but another library
  EXPECT_TRUE(GpuMeters(std::nullopt).read().empty());
  NvmlCalls calls;
  calls.init = [] { return 0; };
  calls.count = [](unsigned* count) { return *count = 3, 0; };
  calls.device = [](unsigned i, void** device) { return *device = reinterpret_cast<void*>(i + 1UL), i == 1 ? 3 : 0; };
  calls.utilization = [](void*, NvmlUtilization* out) { return *out = {75, 20}, 0; };
  calls.memory = [](void* device, NvmlMemory* out) {
    return *out = {8ULL << 30, 0, 2ULL << 30}, device == reinterpret_cast<void*>(3UL) ? 999 : 0;
  };
  calls.name = [](void*, char* name, unsigned) { return *name = 'G', 0; };
  const auto readings = GpuMeters(calls).read();
  ASSERT_EQ(readings.size(), 2u);  // the second one cannot be opened
  EXPECT_EQ(readings[0].name, "G");
  EXPECT_EQ(readings[0].busy, 0.75);
  EXPECT_EQ(readings[0].memory_used_gb, 2);
  EXPECT_EQ(readings[0].memory_total_gb, 8);
  EXPECT_EQ(readings[1].memory_used_gb, 0);
  calls.init = [] { return 9; };
  EXPECT_TRUE(GpuMeters(calls).read().empty());
}

}  // namespace
}  // namespace tandem
