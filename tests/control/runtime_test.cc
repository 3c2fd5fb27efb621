// Local processes as workers: shell scripts that speak on the pulse's socket or not.
#include "control/runtime.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>

#include <atomic>
#include <thread>

#include "control/pulse.h"
#include "control/restart_budget.h"
#include "control/worker_json.h"

namespace tandem {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

WorkerSpec shell(int rank, const std::string& script) {
  return {.role = "actor", .device = "cpu", .rank = rank, .program = "/bin/sh", .arguments = {"sh", "-c", script}};
}

template <class Condition>
bool soon(const Condition& condition) {
  const auto deadline = Clock::now() + 5s;
  while (!condition()) {
    if (Clock::now() > deadline) return false;
    std::this_thread::sleep_for(2ms);
  }
  return true;
}

bool alive(pid_t pid) { return ::kill(pid, 0) == 0; }

TEST(LocalProcesses, AnExitCodeIsALossWithTheLastLinesAndTakesTheOthersAlong) {
  const auto runtime = local_processes({});
  runtime->start(
      {shell(1, "exec sleep 60"), shell(2, "for i in 1 2 3; do echo line $i >&2; done; printf torn >&2; exit 7")});
  const auto workers = runtime->workers();
  ASSERT_EQ(workers.size(), 2U);
  ASSERT_TRUE(soon([&] { return runtime->lost().has_value(); }));
  const WorkerStatus lost = *runtime->lost();
  EXPECT_EQ(lost.rank, 2);
  EXPECT_EQ(lost.state, WorkerState::kEnded);
  EXPECT_EQ(lost.ending, "exit code 7");
  EXPECT_EQ(lost.last_lines, (std::vector<std::string>{"line 1", "line 2", "line 3", "torn"}));
  EXPECT_TRUE(soon([&] { return runtime->workers()[0].state == WorkerState::kEnded; }));
  EXPECT_EQ(runtime->lost()->rank, 2);  // the first one stays named
  EXPECT_THROW(runtime->throw_if_lost(), WorkerLost);
  const std::string text = describe_loss(lost);
  for (const char* part : {"actor rank 2", "exit code 7", "line 3"}) EXPECT_NE(text.find(part), text.npos) << text;
  runtime->end(0ms);
  for (const WorkerStatus& worker : workers) EXPECT_FALSE(alive(worker.pid));
  EXPECT_TRUE(runtime->workers().empty());
}

TEST(LocalProcesses, ASignalIsNamed) {
  const auto runtime = local_processes({});
  runtime->start({shell(1, "kill -SEGV $$")});
  ASSERT_TRUE(soon([&] { return runtime->lost().has_value(); }));
  EXPECT_EQ(runtime->lost()->ending, "signal 11 (Segmentation fault)");
}

TEST(LocalProcesses, OnlyTheLastLinesAreKept) {
  const auto runtime = local_processes({});
  runtime->start({shell(1, "for i in $(seq 100); do echo $i >&2; done; exit 1")});
  ASSERT_TRUE(soon([&] { return runtime->lost().has_value(); }));
  const auto lines = runtime->lost()->last_lines;
  ASSERT_EQ(lines.size(), 20U);
  EXPECT_EQ(lines.front(), "81");
  EXPECT_EQ(lines.back(), "100");
}

TEST(LocalProcesses, AnEndInOrderIsNoLoss) {
  const auto runtime = local_processes({});
  runtime->start({shell(1, "exit 0"), shell(2, "sleep 0.1")});
  EXPECT_TRUE(soon([&] { return runtime->workers()[1].state == WorkerState::kEnded; }));
  EXPECT_FALSE(runtime->lost());
  runtime->end(5s);
}

TEST(LocalProcesses, SilenceIsALossAndTheProcessIsEnded) {
  const auto runtime = local_processes({.heartbeat_timeout = 150ms, .start_timeout = 300ms});
  runtime->start({shell(1, "exec sleep 60")});  // never gives a sign
  const pid_t pid = runtime->workers()[0].pid;
  const auto begin = Clock::now();
  ASSERT_TRUE(soon([&] { return runtime->lost().has_value(); }));
  EXPECT_GE(Clock::now() - begin, 290ms);
  EXPECT_EQ(runtime->lost()->state, WorkerState::kHung);
  EXPECT_NE(describe_loss(*runtime->lost()).find("no sign of life"), std::string::npos);
  EXPECT_TRUE(soon([&] { return !alive(pid); }));
}

TEST(LocalProcesses, AStoppedWorkerIsNoticedAfterItsLastSign) {
  const auto runtime = local_processes({.heartbeat_timeout = 700ms});
  // A Python worker that beats as a Pulse does.
  runtime->start({shell(1,
                        "exec python3 -c 'import os,socket,time\n"
                        "fd,ms=os.environ[\"TANDEM_PULSE\"].split(\":\")\n"
                        "s=socket.socket(fileno=int(fd))\n"
                        "while True: s.send(b\"update\"); time.sleep(int(ms)/1000)'")});
  ASSERT_TRUE(soon([&] { return runtime->workers()[0].state == WorkerState::kRunning; }));
  std::this_thread::sleep_for(300ms);
  ASSERT_FALSE(runtime->lost());
  ::kill(runtime->workers()[0].pid, SIGSTOP);
  ASSERT_TRUE(soon([&] { return runtime->lost().has_value(); }));
  EXPECT_EQ(runtime->lost()->doing, "update");
  EXPECT_EQ(runtime->lost()->state, WorkerState::kHung);
  runtime->end(0ms);
}

TEST(LocalProcesses, AGroupCanBeStartedAnew) {
  const auto runtime = local_processes({});
  runtime->start({shell(1, "exit 3")});
  ASSERT_TRUE(soon([&] { return runtime->lost().has_value(); }));
  runtime->end(0ms);
  runtime->start({shell(1, "exec sleep 60")});
  EXPECT_FALSE(runtime->lost());
  EXPECT_EQ(runtime->workers().size(), 1U);
  const auto begin = Clock::now();
  runtime->end(100ms);
  EXPECT_GE(Clock::now() - begin, 95ms);  // its grace
}

TEST(LocalProcesses, AProgramThatIsNotThereIsSaid) {
  const auto runtime = local_processes({});
  WorkerSpec spec = shell(1, "");
  spec.program = "/no/such/program";
  EXPECT_THROW(runtime->start({spec}), IoError);
  EXPECT_TRUE(runtime->workers().empty());
}

TEST(LocalProcesses, TryingOutLeavesTheGroupAlone) {
  const auto runtime = local_processes({});
  runtime->start({shell(1, "exec sleep 60")});
  EXPECT_TRUE(runtime->try_out({shell(2, "exit 0"), shell(3, "sleep 0.05")}, 5s));
  EXPECT_FALSE(runtime->try_out({shell(2, "exit 0"), shell(3, "exit 1")}, 5s));
  EXPECT_FALSE(runtime->try_out({shell(2, "exec sleep 60")}, 50ms));
  WorkerSpec missing = shell(2, "");
  missing.program = "/no/such/program";
  EXPECT_FALSE(runtime->try_out({missing}, 5s));
  EXPECT_FALSE(runtime->lost());
  EXPECT_EQ(runtime->workers().size(), 1U);
}

TEST(LocalProcesses, ALossIsForgottenWithItsGroup) {
  const auto runtime = local_processes({});
  runtime->start({shell(1, "exit 3")});
  ASSERT_TRUE(soon([&] { return runtime->lost().has_value(); }));
  runtime->end(0ms);
  EXPECT_FALSE(runtime->lost());
}

TEST(WorkerThreads, LiveAndAreLostByWhatTheyThrow) {
  std::atomic<bool> go{false};
  const auto runtime = worker_threads([&](const WorkerSpec& spec, const auto& tell) {
    tell("work");
    while (!go) std::this_thread::sleep_for(1ms);
    if (spec.rank == 2) throw IoError("no more disk");
  });
  runtime->start({shell(1, ""), shell(2, "")});
  ASSERT_TRUE(soon([&] { return runtime->workers()[1].doing == "work"; }));
  EXPECT_EQ(runtime->workers()[0].state, WorkerState::kRunning);
  EXPECT_FALSE(runtime->lost());
  go = true;
  ASSERT_TRUE(soon([&] { return runtime->lost().has_value(); }));
  EXPECT_EQ(runtime->lost()->rank, 2);
  EXPECT_NE(describe_loss(*runtime->lost()).find("no more disk"), std::string::npos);
  runtime->end(0ms);
  EXPECT_TRUE(runtime->workers().empty());
  EXPECT_FALSE(runtime->lost());
}

TEST(Pulse, TellsWhatAWorkerWaitsFor) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
  {
    Pulse pulse(ends[1], 5ms);
    pulse.ask([] { return std::string("sum of losses"); });
    std::string words;
    do {
      char text[64];
      words.assign(text, static_cast<size_t>(std::max<ssize_t>(0, ::recv(ends[0], text, sizeof(text), 0))));
    } while (words == "start");
    EXPECT_EQ(words, "start, in the exchange 'sum of losses'");
  }
  ::close(ends[0]);
}

TEST(Pulse, TellsWhatIsDoneAtOnceAndAgain) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
  const auto next = [&] {
    char words[64];
    const auto got = ::recv(ends[0], words, sizeof(words), 0);
    return std::string(words, static_cast<size_t>(std::max<ssize_t>(0, got)));
  };
  {
    Pulse pulse(ends[1], 20ms);
    EXPECT_EQ(next(), "start");
    EXPECT_EQ(next(), "start");
    pulse.doing("generate");
    std::string words;
    do words = next();
    while (words == "start");
    EXPECT_EQ(words, "generate");
    EXPECT_EQ(next(), "generate");
  }
  while (!next().empty()) {
  }  // its end is closed: no more signs
  ::close(ends[0]);
}

TEST(RestartBudget, CountsWithinTheWindow) {
  RestartBudget budget(2, 10min);
  const auto start = Clock::now();
  EXPECT_TRUE(budget.take(start));
  EXPECT_TRUE(budget.take(start + 1min));
  EXPECT_FALSE(budget.take(start + 9min));
  EXPECT_TRUE(budget.take(start + 10min + 1s));
  EXPECT_FALSE(budget.take(start + 10min + 2s));
  EXPECT_EQ(budget.total(), 3);
  EXPECT_FALSE(RestartBudget(0, 1min).take(start));
}

TEST(WorkerTable, AlignsItsColumns) {
  const auto lines = worker_table({{.role = "actor", .device = "cpu", .host = "a", .rank = 1, .pid = 12345},
                                   {.role = "reward", .device = "cpu", .host = "b", .rank = 0, .pid = 7}});
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[0], "role    rank  process  host  device  state");
  EXPECT_EQ(lines[1], "actor   1     12345    a     cpu     starting");
  EXPECT_EQ(lines[2], "reward  0     7        b     cpu     starting");
}

TEST(WorkerJson, GivesBackWhatItWasGiven) {
  const WorkerSpec spec{.role = "actor",
                        .device = "cpu",
                        .rank = 3,
                        .program = "/bin/x",
                        .folder = "/tmp",
                        .arguments = {"x", "a=\"b c\"", ""},
                        .environment = {"A=1"}};
  const WorkerSpec again = worker_spec(to_json(spec));
  EXPECT_EQ(again.role, "actor");
  EXPECT_EQ(again.device, "cpu");
  EXPECT_EQ(again.rank, 3);
  EXPECT_EQ(again.program, "/bin/x");
  EXPECT_EQ(again.folder, "/tmp");
  EXPECT_EQ(again.arguments, spec.arguments);
  EXPECT_EQ(again.environment, spec.environment);

  const auto states = worker_states(to_json(std::vector<WorkerStatus>{{.role = "actor",
                                                                       .device = "cpu",
                                                                       .host = "h",
                                                                       .rank = 2,
                                                                       .pid = 17,
                                                                       .state = WorkerState::kEnded,
                                                                       .doing = "update",
                                                                       .doing_seconds = 1.5,
                                                                       .quiet_seconds = 0.25,
                                                                       .ending = "exit code 2",
                                                                       .last_lines = {"one", "tw\xff"}}}));
  ASSERT_EQ(states.size(), 1U);
  EXPECT_EQ(states[0].host, "h");
  EXPECT_EQ(states[0].rank, 2);
  EXPECT_EQ(states[0].pid, 17);
  EXPECT_EQ(states[0].state, WorkerState::kEnded);
  EXPECT_EQ(states[0].doing, "update");
  EXPECT_EQ(states[0].doing_seconds, 1.5);
  EXPECT_EQ(states[0].quiet_seconds, 0.25);
  EXPECT_EQ(states[0].ending, "exit code 2");
  EXPECT_EQ(states[0].last_lines[0], "one");  // bytes that are no text become U+FFFD
  EXPECT_EQ(states[0].last_lines[1], "tw\xef\xbf\xbd");
}

}  // namespace
}  // namespace tandem
