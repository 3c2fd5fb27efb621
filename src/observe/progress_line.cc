#include "observe/progress_line.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "observe/utf8.h"

namespace tandem {
namespace {

constexpr std::string_view kGap = "  ";
constexpr int kShortestBar = 5, kLongestBar = 30;

std::string head_of(const ProgressView& view) {
  std::string head;
  // While a phase runs, the step at work is the one after those done.
  const int64_t step = std::min(view.steps_done + (view.phase.empty() ? 0 : 1), view.total_steps);
  if (view.total_steps > 0) head = fmt::format("step {}/{}", step, view.total_steps);
  if (!view.phase.empty()) head.append(head.empty() ? "" : kGap).append(view.phase);
  return head;
}

double fraction_of(const ProgressView& view) {
  return std::min(1.0, static_cast<double>(view.tokens) / static_cast<double>(view.total_tokens));
}

std::string tail_of(const ProgressView& view) {
  std::string tail;
  const auto add = [&](const std::string& part) { tail.append(tail.empty() ? "" : kGap).append(part); };
  const bool known = view.total_tokens > 0;
  if (!view.phase.empty()) {
    const double rate = view.phase_seconds > 0 ? static_cast<double>(view.tokens) / view.phase_seconds : 0;
    if (known) add(fmt::format("{}%", static_cast<int>(fraction_of(view) * 100)));
    if (!known && view.tokens > 0) add(with_thousands(view.tokens) + " tok");
    if (rate > 0) add(with_thousands(std::llround(rate)) + " tok/s");
    if (known && rate > 0) {
      const auto left = static_cast<double>(std::max<int64_t>(0, view.total_tokens - view.tokens));
      add(clock_text(left / rate) + " left");
    } else {
      add(clock_text(view.phase_seconds));
    }
  }
  if (view.run_seconds_left) add("run " + clock_text(*view.run_seconds_left) + " left");
  return tail;
}

std::string bar_of(double fraction, int width, Bar style) {
  const int filled = static_cast<int>(fraction * width);
  std::string bar;
  for (int i = 0; i < width; ++i)
    bar += i < filled ? (style == Bar::kBlocks ? "\u2588" : "#") : (style == Bar::kBlocks ? "\u2591" : "-");
  return bar;
}

}  // namespace

std::string progress_line(const ProgressView& view, int columns, Bar bar) {
  std::string line = head_of(view);
  const std::string tail = tail_of(view);
  const int used = display_width(line) + display_width(tail) + 2 * static_cast<int>(kGap.size());
  const int room = std::min(kLongestBar, columns - used);
  if (bar != Bar::kNone && !view.phase.empty() && view.total_tokens > 0 && room >= kShortestBar)
    line.append(line.empty() ? "" : kGap).append(bar_of(fraction_of(view), room, bar));
  if (!tail.empty()) line.append(line.empty() ? "" : kGap).append(tail);
  return std::string(fit_to_width(line, columns));
}

std::string with_thousands(int64_t value) {
  std::string digits = std::to_string(value);
  const size_t first = digits[0] == '-' ? 1 : 0;
  for (size_t end = digits.size(); end > first + 3;) digits.insert(end -= 3, 1, ',');
  return digits;
}

std::string clock_text(double seconds) {
  // A rate near zero makes times without bound.
  const int64_t whole = std::llround(std::clamp(seconds, 0.0, 1e9));
  const int64_t days = whole / 86400, hours = whole / 3600 % 24, minutes = whole / 60 % 60;
  if (days > 0) return fmt::format("{}d {}:{:02}:{:02}", days, hours, minutes, whole % 60);
  if (hours > 0) return fmt::format("{}:{:02}:{:02}", hours, minutes, whole % 60);
  return fmt::format("{}:{:02}", minutes, whole % 60);
}

}  // namespace tandem
