// The text of a progress line. Pure functions; `observe/progress.h` decides when to show it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace tandem {

struct ProgressView {
  std::string phase;         // "" between phases
  int64_t tokens = 0;        // of the phase so far
  int64_t total_tokens = 0;  // 0: unknown
  double phase_seconds = 0;
  int64_t steps_done = 0;
  int64_t total_steps = 0;  // 0: unknown
  std::optional<double> run_seconds_left;
};

enum class Bar { kNone, kAscii, kBlocks };

// "step 4/100  gen  #####-----  50%  1,234 tok/s  0:12 left  run 1:02:03 left", in at most `columns` columns. Without
// room the bar goes first, then the line is cut at the right.
std::string progress_line(const ProgressView& view, int columns, Bar bar);

std::string with_thousands(int64_t value);  // 1234567 -> "1,234,567"
std::string clock_text(double seconds);     // 65 -> "1:05", 3723 -> "1:02:03", 100000 -> "1d 3:46:40"

}  // namespace tandem
