#include "reward/function.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <chrono>
#include <fstream>
#include <thread>

#include "base/error.h"
#include "config/load.h"
#include "data/expect_error.h"

namespace tandem {
namespace {

RewardOptions python(const std::string& name, const std::string& source) {
  const auto path = std::filesystem::path(testing::TempDir()) / name;
  std::ofstream(path) << source;
  return {.path = path, .num_workers = 2, .timeout_seconds = 20};
}

std::vector<RewardRequest> requests(const std::vector<std::string>& solutions) {
  std::vector<RewardRequest> made;
  for (size_t i = 0; i < solutions.size(); ++i)
    made.push_back({.data_source = "src",
                    .solution_str = solutions[i],
                    .ground_truth = "truth",
                    .extra_info = R"({"index": 3, "tags": ["é"]})",
                    .prompt_id = i,
                    .sample_index = 1});
  return made;
}

// Scores by the user's expression `bad` fail as told; the same object goes on afterwards.
void expect_failures(const std::vector<std::pair<std::string, std::string>>& bad_and_reason) {
  PythonReward reward(python("failing.py", R"(
import os, sys
def fail(error): raise error
def compute_score(data_source, solution_str, ground_truth, extra_info):
    return eval(solution_str)
)"));
  for (const auto& [bad, reason] : bad_and_reason) {
    expect_error<DataError>([&] { reward.score(requests({"1", "2", bad, "3"})); }, {"sample 1 of prompt 2", reason});
    EXPECT_EQ(reward.score(requests({"1", "2"}))[1].score, 2);
  }
}

bool has_children() {
  siginfo_t info{};
  return ::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 || errno != ECHILD;
}

TEST(PythonReward, PassesEverythingAndTakesNumbersAndDicts) {
  testing::internal::CaptureStderr();
  PythonReward reward(python("good.py", R"(
import sys
def compute_score(data_source, solution_str, ground_truth, extra_info=None, scale=1):
    assert data_source == "src" and ground_truth == "truth" and extra_info == {"index": 3, "tags": ["é"]}
    print("user output")
    sys.stdout.write('{"score": 100}\n')
    return {"int": 2, "float": 0.25, "bool": True,
            "dict": {"score": scale, "acc": True, "pred": "text", "odd": float("nan"), "n": 3}}[solution_str]
)"));
  const auto results = reward.score(requests({"int", "float", "bool", "dict", "int"}));
  EXPECT_NE(testing::internal::GetCapturedStderr().find("user output"), std::string::npos);
  ASSERT_EQ(results.size(), 5u);
  EXPECT_EQ(results[0].score, 2);
  EXPECT_EQ(results[1].score, 0.25);
  EXPECT_EQ(results[2].score, 1);
  EXPECT_EQ(results[3].score, 1);
  EXPECT_EQ(results[3].extra, (std::vector<std::pair<std::string, double>>{{"acc", 1}, {"n", 3}}));
  EXPECT_EQ(results[4].score, 2);
  EXPECT_TRUE(reward.score({}).empty());
}

TEST(PythonReward, PassesKeywordArgumentsOtherNamesAndAwaits) {
  auto options =
      python("kwargs.py", "async def judge(scale, solution_str, **rest):\n    return scale * len(solution_str)\n");
  options.name = "judge";
  options.reward_kwargs = R"({"scale": 2.5})";
  EXPECT_EQ(make_reward(options)->score(requests({"four"}))[0].score, 10);
}

TEST(PythonReward, CarriesLongText) {
  PythonReward reward(python("long.py", "def compute_score(solution_str, **rest): return len(solution_str)\n"));
  const std::string text(3'000'000, 'x');
  const auto results = reward.score(requests({text, text, text + "\n\"é"}));
  EXPECT_EQ(results[0].score, 3'000'000);
  EXPECT_EQ(results[2].score, 3'000'003);
}

TEST(PythonReward, KeepsOrderOverManySamples) {
  PythonReward reward(python("order.py", "def compute_score(solution_str, **rest): return int(solution_str)\n"));
  std::vector<std::string> numbers;
  for (int i = 0; i < 500; ++i) numbers.push_back(std::to_string(i));
  const auto results = reward.score(requests(numbers));
  for (int i = 0; i < 500; ++i) EXPECT_EQ(results[i].score, i);
}

TEST(PythonReward, ReportsExceptions) {
  expect_failures({{R"(fail(ValueError('boom\nsecond')))", "ValueError: boom second (failing.py line 3)"},
                   {"sys.exit(3)", "SystemExit: 3"}});
}

TEST(PythonReward, ReportsScoresThatAreNoFiniteNumber) {
  expect_failures({{"float('nan')", "returned nan"},
                   {"-float('inf')", "returned -inf"},
                   {"{'score': 1, 'acc': float('nan')}", "returned nan as \"acc\""},
                   {"'1.0'", "returned '1.0'"},
                   {"None", "returned None"},
                   {"{'acc': 1}", "without \"score\""},
                   {"{'score': None}", "returned None"}});
}

TEST(PythonReward, ReportsDeadProcesses) {
  expect_failures(
      {{"os._exit(7)", "ended by itself (exit code 7)"}, {"os.kill(os.getpid(), 11)", "ended by itself (signal 11)"}});
}

TEST(PythonReward, AsksOnceMoreAfterAKillFromOutside) {
  // The first process for each sample is killed in the middle of it; "always" kills all of them.
  const auto options =
      python("killed.py",
             "import os, signal\ndef compute_score(solution_str, **rest):\n"
             "    mark = os.path.join(os.path.dirname(os.path.abspath(__file__)), solution_str + '.seen')\n"
             "    if solution_str == 'always' or not os.path.exists(mark):\n"
             "        open(mark, 'w').close()\n"
             "        os.kill(os.getpid(), signal.SIGKILL)\n"
             "    return 5\n");
  for (const char* name : {"a.seen", "b.seen", "always.seen"})
    std::filesystem::remove(options.path.parent_path() / name);
  PythonReward reward(options);
  const auto results = reward.score(requests({"a", "b"}));
  EXPECT_EQ(results[0].score, 5);
  EXPECT_EQ(results[1].score, 5);
  expect_error<DataError>([&] { reward.score(requests({"always"})); }, {"ended by itself (signal 9)"});
}

TEST(PythonReward, KillsWhatTakesTooLong) {
  auto options = python("slow.py",
                        "import time\ndef compute_score(solution_str, **rest):\n"
                        "    time.sleep(100 if solution_str == 'slow' else 0)\n    return 5\n");
  options.timeout_seconds = 0.3;
  PythonReward reward(options);
  const auto begin = std::chrono::steady_clock::now();
  expect_error<DataError>(
      [&] {
        reward.score(requests({"a", "slow", "slow", "b"}));
      },
      {"sample 1 of prompt 1", "more than 0.3 s"});
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
  EXPECT_EQ(reward.score(requests({"a", "b", "c"}))[2].score, 5);
}

TEST(PythonReward, RefusesAFileItCannotUseBeforeAnyScore) {
  const auto refuse = [](const RewardOptions& options, const std::vector<std::string>& parts) {
    expect_error<ConfigError>([&] { PythonReward reward(options); }, parts);
  };
  refuse(python("syntax.py", "def compute_score(:\n"), {"SyntaxError", "syntax.py"});
  refuse(python("import.py", "import no_such_module_here\n"), {"ModuleNotFoundError", "no_such_module_here", "line 1"});
  refuse(python("nothing.py", "x = 1\n"), {"compute_score", "AttributeError"});
  refuse(python("quits.py", "import os\nos._exit(4)\n"), {"exit code 4"});
  refuse({.path = "/no/such/file.py"}, {"/no/such/file.py", "not a file"});
  auto options = python("fine.py", "def compute_score(**rest): return 0\n");
  options.reward_kwargs = "[1]";
  refuse(options, {"reward_kwargs"});
}

TEST(PythonReward, NamesTheRowWithBadExtraInfo) {
  PythonReward reward(python("fine.py", "def compute_score(**rest): return 0\n"));
  auto bad = requests({"a", "b"});
  bad[1].extra_info = "{";
  expect_error<DataError>([&] { reward.score(bad); }, {"prompt 1", "extra_info"});
  EXPECT_EQ(reward.score(requests({"a"})).size(), 1u);
}

// An existing file and the override line that names it in a verl script, both unchanged.
TEST(PythonReward, RunsAVerlFileByAVerlOverride) {
  const std::string file = TANDEM_TEST_DATA "/../reward/verl_style_reward.py";
  const std::vector<std::string> line = {"custom_reward_function.path=" + file,
                                         "custom_reward_function.name=compute_score",
                                         "+custom_reward_function.reward_kwargs.format_score=0.25",
                                         "reward_model.reward_manager=naive", "actor_rollout_ref.model.path=/m"};
  const CustomRewardFunctionConfig custom = parse_config("", "", line).config.reward.custom_reward_function;
  const auto reward = make_reward({.path = custom.path.value_or(""),
                                   .name = custom.name,
                                   .reward_kwargs = custom.reward_kwargs.text,
                                   .num_workers = 2,
                                   .timeout_seconds = 20});
  std::vector<RewardRequest> samples(3);
  for (auto& sample : samples)
    sample = {.data_source = "my/task", .ground_truth = "42", .extra_info = R"({"index": 5})"};
  samples[0].solution_str = "So <answer>41</answer>, no: <answer> 42 </answer>";
  samples[1].solution_str = "<answer>4</answer>";
  samples[2].solution_str = "42";
  const auto results = reward->score(samples);
  EXPECT_EQ(results[0].score, 1);
  EXPECT_EQ(results[1].score, 0.25);
  EXPECT_EQ(results[2].score, 0);
  EXPECT_EQ(results[0].extra,
            (std::vector<std::pair<std::string, double>>{{"acc", 1}, {"answer_length", 2}, {"index", 5}}));
  samples[1].data_source = "other";
  samples[1].sample_index = 3;
  expect_error<DataError>([&] { reward->score(samples); }, {"sample 3", "NotImplementedError", "verl_style_reward.py"});
}

TEST(PythonReward, BeginsWithTheSubmission) {
  const auto flag = std::filesystem::path(testing::TempDir()) / "begun";
  std::filesystem::remove(flag);
  PythonReward reward(python("early.py",
                             "def compute_score(solution_str, **rest):\n"
                             "    open(solution_str, 'w').close()\n    return 1\n"));
  auto result = reward.submit(requests({flag.string()})[0]);
  for (int i = 0; i < 1000 && !std::filesystem::exists(flag); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_TRUE(std::filesystem::exists(flag));
  EXPECT_EQ(result.get().score, 1);
}

TEST(PythonReward, MayBeCalledFromSeveralThreads) {
  PythonReward reward(python("order.py", "def compute_score(solution_str, **rest): return int(solution_str)\n"));
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] { EXPECT_EQ(reward.score(requests({std::to_string(t)}))[0].score, t); });
}

TEST(PythonReward, LeavesNoProcessBehind) {
  {
    PythonReward reward(python("hang.py", "def compute_score(**rest): return 0\n"));
    EXPECT_TRUE(has_children());
  }
  EXPECT_FALSE(has_children());
}

}  // namespace
}  // namespace tandem
