// What runs now, on stderr: a live line on a terminal, else plain lines now and then.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace tandem {

// Defaults are those of a program; tests set them.
struct ProgressOptions {
  int fd = 2;
  std::optional<bool> live;         // absent: live when fd is a terminal and TERM is not "dumb"
  std::optional<int> columns;       // absent: asked of the terminal at each drawing, 80 if it does not say
  std::optional<bool> utf8;         // absent: by LC_ALL, LC_CTYPE, LANG
  double plain_interval_s = 30;     // between plain lines within a phase
  std::function<double()> seconds;  // a clock that never goes back; absent: the steady clock
};

// Thread-safe. While one lives, log lines and print_line() (base/log.h) appear above the live line, never inside it.
// At most one live one exists in a process; it redraws itself ten times a second, from a thread of its own.
class Progress {
 public:
  explicit Progress(ProgressOptions options = {});
  ~Progress();  // wipes the live line

  // A phase of the current step ("gen", "update_actor"). `total_tokens`: 0 when unknown, then no bar and no time left.
  void begin_phase(std::string_view name, int64_t total_tokens);
  void advance(int64_t tokens);
  void end_phase();

  // `done` of `total` steps are finished. A summary that is not empty stays on the screen as "step 3/100  <summary>".
  // The time left is measured from the first call on: call it before the first step too, with what was resumed.
  void step(int64_t done, int64_t total, std::string_view summary);

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace tandem
