#include "observe/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <stop_token>
#include <thread>
#include <utility>

#include "base/log.h"
#include "observe/progress_line.h"

namespace tandem {
namespace {

constexpr auto kRedraw = std::chrono::milliseconds(100);
constexpr std::string_view kWipe = "\r\x1b[K";  // to the start of the line, erase to its end

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

bool is_live_terminal(int fd) {
  const char* kind = std::getenv("TERM");
  return ::isatty(fd) == 1 && kind != nullptr && std::string_view(kind) != "dumb";
}

bool locale_is_utf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* value = std::getenv(name);
    if (value == nullptr || *value == '\0') continue;
    std::string lower(value);
    std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
    return lower.find("utf-8") != std::string::npos || lower.find("utf8") != std::string::npos;
  }
  return false;
}

int terminal_columns(int fd) {
  winsize size{};
  return ::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

// A terminal that is gone is no reason to stop a run.
void write_quietly(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return;
    text.remove_prefix(static_cast<size_t>(n));
  }
}

}  // namespace

// Everything in it is guarded by terminal_mutex().
class Progress::State : public LiveLine {
 public:
  explicit State(ProgressOptions options)
      : fd_(options.fd),
        live_(options.live.value_or(is_live_terminal(options.fd))),
        columns_(options.columns),
        bar_(options.utf8.value_or(locale_is_utf8()) ? Bar::kBlocks : Bar::kAscii),
        plain_interval_s_(options.plain_interval_s),
        seconds_(options.seconds ? std::move(options.seconds) : steady_seconds) {
    if (!live_) return;
    {
      const std::lock_guard lock(terminal_mutex());
      set_live_line(this);
    }
    ticker_ = std::jthread([this](const std::stop_token& stop) { tick(stop); });
  }

  ~State() override {
    if (!live_) return;
    ticker_.request_stop();
    ticker_.join();
    const std::lock_guard lock(terminal_mutex());
    wipe();
    set_live_line(nullptr);
  }

  // The ticker draws it again after what is printed, so that a burst of log lines does not.
  void wipe() noexcept override {
    if (std::exchange(shown_, false)) write_quietly(fd_, kWipe);
  }

  void begin_phase(std::string_view name, int64_t total_tokens) {
    view_.phase = name;
    view_.tokens = 0;
    view_.total_tokens = total_tokens;
    phase_start_ = last_plain_ = seconds_();
  }

  void advance(int64_t tokens) {
    view_.tokens += tokens;
    if (live_ || view_.phase.empty() || seconds_() - last_plain_ < plain_interval_s_) return;
    last_plain_ = seconds_();
    print(line(/*columns=*/200, Bar::kNone));
  }

  void end_phase() { view_.phase.clear(); }

  void step(int64_t done, int64_t total, std::string_view summary) {
    const double now = seconds_();
    view_.steps_done = done;
    view_.total_steps = total;
    if (!first_step_) {
      first_step_ = {done, now};
    } else if (done > first_step_->done) {
      seconds_per_step_ = (now - first_step_->at) / static_cast<double>(done - first_step_->done);
    }
    last_step_ = now;
    if (!summary.empty())
      print("step " + std::to_string(done) + '/' + std::to_string(total) + "  " + std::string(summary));
  }

 private:
  struct StepTime {
    int64_t done = 0;
    double at = 0;
  };

  void tick(const std::stop_token& stop) {
    std::unique_lock lock(terminal_mutex());
    while (!stop.stop_requested()) {
      draw();
      wake_.wait_for(lock, stop, kRedraw, [] { return false; });
    }
  }

  void draw() {
    // One column is left free: a full line makes some terminals wrap.
    const std::string text = line(columns_.value_or(terminal_columns(fd_)) - 1, bar_);
    if (text.empty()) return wipe();
    write_quietly(fd_, std::string(kWipe) + text);
    shown_ = true;
  }

  void print(const std::string& text) {
    wipe();
    write_quietly(fd_, text + '\n');
  }

  std::string line(int columns, Bar bar) {
    const double now = seconds_();
    view_.phase_seconds = now - phase_start_;
    view_.run_seconds_left.reset();
    if (seconds_per_step_) {
      const double of_steps = *seconds_per_step_ * static_cast<double>(view_.total_steps - view_.steps_done);
      view_.run_seconds_left = std::max(0.0, of_steps - (now - last_step_));
    }
    return progress_line(view_, columns, bar);
  }

  const int fd_;
  const bool live_;
  const std::optional<int> columns_;
  const Bar bar_;
  const double plain_interval_s_;
  const std::function<double()> seconds_;
  ProgressView view_;
  double phase_start_ = 0, last_plain_ = 0, last_step_ = 0;
  std::optional<StepTime> first_step_;
  std::optional<double> seconds_per_step_;
  bool shown_ = false;
  std::condition_variable_any wake_;
  std::jthread ticker_;
};

Progress::Progress(ProgressOptions options) : state_(std::make_unique<State>(std::move(options))) {}
Progress::~Progress() = default;

void Progress::begin_phase(std::string_view name, int64_t total_tokens) {
  const std::lock_guard lock(terminal_mutex());
  state_->begin_phase(name, total_tokens);
}

void Progress::advance(int64_t tokens) {
  const std::lock_guard lock(terminal_mutex());
  state_->advance(tokens);
}

void Progress::end_phase() {
  const std::lock_guard lock(terminal_mutex());
  state_->end_phase();
}

void Progress::step(int64_t done, int64_t total, std::string_view summary) {
  const std::lock_guard lock(terminal_mutex());
  state_->step(done, total, summary);
}

}  // namespace tandem
