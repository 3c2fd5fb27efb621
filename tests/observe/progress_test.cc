#include "observe/progress.h"

#include <gtest/gtest.h>
#include <pty.h>
#include <unistd.h>

#include <chrono>
#include <regex>
#include <thread>
#include <vector>

#include "base/log.h"
#include "observe/progress_line.h"
#include "observe/utf8.h"
#include "temp_folder.h"

namespace tandem {
namespace {

ProgressView half_done() {
  ProgressView view;
  view.phase = "gen";
  view.tokens = 500;
  view.total_tokens = 1000;
  view.phase_seconds = 0.25;
  view.steps_done = 3;
  view.total_steps = 100;
  view.run_seconds_left = 3723;
  return view;
}

TEST(ProgressLine, ByHand) {
  // 15 columns of head, 45 of tail, 2 x 2 of gaps: 75 leave 11 for the bar.
  EXPECT_EQ(progress_line(half_done(), 75, Bar::kAscii),
            "step 4/100  gen  #####------  50%  2,000 tok/s  0:00 left  run 1:02:03 left");
}

TEST(ProgressLine, NeverWiderThanTheTerminal) {
  for (int columns = 0; columns < 120; ++columns) {
    EXPECT_LE(display_width(progress_line(half_done(), columns, Bar::kBlocks)), columns);
    EXPECT_LE(display_width(progress_line(half_done(), columns, Bar::kAscii)), columns);
  }
}

TEST(ProgressLine, WithoutRoomTheBarGoesFirst) {
  EXPECT_EQ(progress_line(half_done(), 62, Bar::kAscii),
            "step 4/100  gen  50%  2,000 tok/s  0:00 left  run 1:02:03 left");
  EXPECT_EQ(progress_line(half_done(), 20, Bar::kAscii), "step 4/100  gen  50%");
}

TEST(ProgressLine, UnknownTotalsAndNoTokens) {
  ProgressView view;
  view.phase = "reward";
  view.phase_seconds = 65;
  EXPECT_EQ(progress_line(view, 80, Bar::kAscii), "reward  1:05");
  view.tokens = 6500;
  EXPECT_EQ(progress_line(view, 80, Bar::kAscii), "reward  6,500 tok  100 tok/s  1:05");
  EXPECT_EQ(progress_line({}, 80, Bar::kAscii), "");
}

TEST(ProgressLine, MoreTokensThanForeseen) {
  auto view = half_done();
  view.tokens = 1500;
  EXPECT_EQ(progress_line(view, 200, Bar::kNone), "step 4/100  gen  100%  6,000 tok/s  0:00 left  run 1:02:03 left");
}

TEST(ProgressLine, NumbersAndTimes) {
  EXPECT_EQ(with_thousands(0), "0");
  EXPECT_EQ(with_thousands(999), "999");
  EXPECT_EQ(with_thousands(1234567), "1,234,567");
  EXPECT_EQ(with_thousands(-1000), "-1,000");
  EXPECT_EQ(clock_text(0.4), "0:00");
  EXPECT_EQ(clock_text(3723), "1:02:03");
  EXPECT_EQ(clock_text(100000), "1d 3:46:40");
}

// What a terminal shows of what was written to it: finished lines, then the current one.
std::vector<std::string> screen(const std::string& bytes) {
  std::vector<std::string> lines{""};
  size_t column = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string& line = lines.back();
    if (bytes[i] == '\r') {
      column = 0;
    } else if (bytes[i] == '\n') {
      lines.emplace_back();
      column = 0;
    } else if (bytes[i] == '\x1b') {
      size_t end = i + 2;
      while (end < bytes.size() && !std::isalpha(static_cast<unsigned char>(bytes[end]))) ++end;
      if (bytes[end] == 'K') line.resize(std::min(line.size(), column));
      i = end;
    } else {
      if (line.size() <= column) line.resize(column + 1, ' ');
      line[column++] = bytes[i];
    }
  }
  return lines;
}

// A pseudo-terminal in the place of stderr, read to its end by a thread.
class TerminalOnStderr {
 public:
  explicit TerminalOnStderr(unsigned short columns) {
    int terminal = -1;
    winsize size{24, columns, 0, 0};
    if (::openpty(&master_, &terminal, nullptr, nullptr, &size) != 0) throw std::runtime_error("openpty");
    saved_ = ::dup(2);
    ::dup2(terminal, 2);
    ::close(terminal);
    reader_ = std::thread([this] {
      char buffer[4096];
      for (ssize_t n; (n = ::read(master_, buffer, sizeof(buffer))) > 0;) bytes_.append(buffer, static_cast<size_t>(n));
    });
  }
  ~TerminalOnStderr() { finish(); }
  std::string finish() {
    if (reader_.joinable()) {
      ::dup2(saved_, 2);  // the last writer is gone: the reader's read fails
      ::close(saved_);
      reader_.join();
      ::close(master_);
    }
    return bytes_;
  }

 private:
  int master_ = -1, saved_ = -1;
  std::string bytes_;
  std::thread reader_;
};

TEST(Progress, LogLinesAndTheLiveLineDoNotGarbleEachOther) {
  TerminalOnStderr terminal(70);
  {
    Progress progress({.live = true, .utf8 = false});
    progress.step(0, 10, "");
    progress.begin_phase("gen", 1000);
    std::vector<std::jthread> threads;
    for (int t = 0; t < 3; ++t)
      threads.emplace_back([&, t] {
        for (int i = 0; i < 40; ++i) {
          progress.advance(3);
          log_info("message " + std::to_string(t) + '.' + std::to_string(i));
          std::this_thread::sleep_for(std::chrono::milliseconds(10));
        }
      });
    threads.clear();
    progress.step(1, 10, "score 0.5");
  }
  const std::string bytes = terminal.finish();
  EXPECT_NE(bytes.find("step 1/10  gen  "), std::string::npos);  // it was drawn
  const auto lines = screen(bytes);
  ASSERT_EQ(lines.size(), 3 * 40 + 1 + 1u);
  const std::regex log_line(R"(\d\d:\d\d:\d\d info message \d\.\d+ *)");
  for (size_t i = 0; i < 120; ++i) EXPECT_TRUE(std::regex_match(lines[i], log_line)) << lines[i];
  EXPECT_EQ(lines[120], "step 1/10  score 0.5");
  EXPECT_EQ(lines[121], "");  // wiped at the end
}

TEST(Progress, IsRedrawnAtMostTenTimesASecondAndFitsTheTerminal) {
  TerminalOnStderr terminal(30);
  const auto start = std::chrono::steady_clock::now();
  {
    Progress progress({.live = true, .utf8 = false});
    progress.begin_phase("update_actor_with_a_long_name", 1000);
    for (int i = 0; i < 300; ++i) {
      progress.advance(1);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
  const std::string bytes = terminal.finish();
  size_t draws = 0, wipe = 0;
  while ((wipe = bytes.find("\r\x1b[K", wipe)) != std::string::npos) {
    wipe += 4;
    const size_t next = bytes.find('\r', wipe);
    const auto drawn = bytes.substr(wipe, next == std::string::npos ? next : next - wipe);
    EXPECT_LE(drawn.size(), 29u) << drawn;
    if (!drawn.empty()) ++draws;
  }
  EXPECT_GE(draws, 2u);
  EXPECT_LE(static_cast<double>(draws), passed.count() * 10 + 1);
}

TEST(Progress, WithoutATerminalItWritesPlainLinesNowAndThen) {
  const TempFolder folder;
  const auto path = folder / "out";
  spill(path, "");
  FILE* file = std::fopen(path.c_str(), "w");
  double now = 100;
  {
    Progress progress({.fd = fileno(file), .plain_interval_s = 30, .seconds = [&] { return now; }});
    progress.step(4, 10, "");
    progress.begin_phase("gen", 4000);
    now += 10;
    progress.advance(1000);
    EXPECT_EQ(slurp(path), "");
    now += 20;
    progress.advance(1000);  // 2000 of 4000 in 30 s
    progress.advance(1);
    progress.end_phase();
    now += 10;
    progress.step(5, 10, "score 0.5");
    progress.begin_phase("gen", 0);
    now += 30;
    progress.advance(300);  // 5 steps of 40 s, less the 30 s gone
  }
  EXPECT_EQ(slurp(path),
            "step 5/10  gen  50%  67 tok/s  0:30 left\n"
            "step 5/10  score 0.5\n"
            "step 6/10  gen  300 tok  10 tok/s  0:30  run 2:50 left\n");
  std::fclose(file);
}

}  // namespace
}  // namespace tandem
