#include "observe/samples_log.h"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>
#include <vector>

#include "temp_folder.h"

namespace tandem {
namespace {

SampleRecord record() {
  SampleRecord made;
  made.step = 3;
  made.data_source = "gsm8k";
  made.prompt = "2+2?";
  made.response = "\"4\"\n";
  made.ground_truth.assign(1, '4');
  made.score = 1;
  made.reward = 0.9;
  made.advantage = -0.5;
  made.stop_reason = "end_of_text";
  made.response_ids = {5, 0};
  made.logprobs = {-0.1f, -2.5f};
  return made;
}

TEST(SamplesLog, ALineByHand) {
  EXPECT_EQ(
      to_json(record()),
      R"({"step":3,"data_source":"gsm8k","prompt":"2+2?","response":"\"4\"\n","ground_truth":"4","score":1,)"
      R"("reward":0.9,"advantage":-0.5,"stop_reason":"end_of_text","response_ids":[5,0],"logprobs":[-0.1,-2.5]})");
}

TEST(SamplesLog, IsJsonWhateverTheBytes) {
  auto odd = record();
  odd.prompt_ids = {1};
  odd.response.assign("\xE4\xB8 \xFF\x01z");
  odd.logprobs = {-std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()};
  const auto read = nlohmann::json::parse(to_json(odd));  // refuses broken UTF-8
  EXPECT_EQ(read["response"], "\uFFFD \uFFFD\x01z");
  EXPECT_EQ(read["prompt_ids"], nlohmann::json::parse("[1]"));
  EXPECT_EQ(read["logprobs"], nlohmann::json::parse(R"(["-Infinity","NaN"])"));
}

TEST(SamplesLog, FloatsReadBackBitwise) {
  auto exact = record();
  exact.logprobs = {-0.69314718f, -1e-30f, -3.4028235e38f, -1.17549435e-38f};
  const auto read = nlohmann::json::parse(to_json(exact));
  EXPECT_EQ(read["logprobs"].get<std::vector<float>>(), exact.logprobs);
}

TEST(SamplesLog, ResumeDropsLaterSteps) {
  const TempFolder folder;
  const auto path = folder / "samples.jsonl";
  {
    SamplesLog log(path);
    for (const int step : {1, 2, 2, 3}) {
      auto one = record();
      one.step = step;
      log.append(one);
    }
  }
  SamplesLog log(path, 2);
  log.append(record());
  std::istringstream lines(slurp(path));
  std::vector<int> steps;
  for (std::string line; std::getline(lines, line);) steps.push_back(nlohmann::json::parse(line)["step"]);
  EXPECT_EQ(steps, (std::vector<int>{1, 2, 2, 3}));
}

TEST(SamplesLog, ThreadsDoNotTearLines) {
  const TempFolder folder;
  const auto path = folder / "samples.jsonl";
  SamplesLog log(path);
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&] {
        for (int i = 0; i < 200; ++i) log.append(record());
      });
  }
  std::istringstream lines(slurp(path));
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) ASSERT_EQ(line, to_json(record()));
  EXPECT_EQ(count, 800);
}

}  // namespace
}  // namespace tandem
