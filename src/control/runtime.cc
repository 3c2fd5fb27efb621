#include "control/runtime.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace tandem {

std::string_view name_of(WorkerState state) {
  switch (state) {
    case WorkerState::kStarting:
      return "starting";
    case WorkerState::kRunning:
      return "running";
    case WorkerState::kHung:
      return "hung";
    case WorkerState::kEnded:
      return "ended";
  }
  return "";
}

std::string describe_loss(const WorkerStatus& worker) {
  std::string text = fmt::format("{} rank {} (process {} on {}) ", worker.role, worker.rank, worker.pid, worker.host);
  if (worker.state == WorkerState::kHung) {
    text += fmt::format("gave no sign of life for {:.1f} s", worker.quiet_seconds);
  } else {
    text += "was ended by " + worker.ending;
  }
  if (!worker.doing.empty()) text += " in " + worker.doing;
  if (worker.last_lines.empty()) return text;
  text += "; its last lines:";
  for (const std::string& line : worker.last_lines) text += " | " + line;
  return text;
}

std::vector<std::string> worker_table(const std::vector<WorkerStatus>& workers) {
  using Row = std::array<std::string, 6>;
  std::vector<Row> rows{{"role", "rank", "process", "host", "device", "state"}};
  for (const WorkerStatus& w : workers)
    rows.push_back({w.role, std::to_string(w.rank), std::to_string(w.pid), w.host, w.device,
                    std::string(name_of(w.state)) + (w.doing.empty() ? "" : ": " + w.doing)});
  std::array<size_t, 6> widths{};
  for (const Row& row : rows)
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  std::vector<std::string> lines;
  for (const Row& row : rows) {
    std::string line;
    for (size_t i = 0; i + 1 < row.size(); ++i) line += fmt::format("{:<{}}  ", row[i], widths[i]);
    lines.push_back(line + row.back());
  }
  return lines;
}

void Runtime::throw_if_lost() const {
  if (const auto worker = lost()) throw WorkerLost(describe_loss(*worker));
}

void InProcess::start(const std::vector<WorkerSpec>& workers) {
  check(workers.empty(), "the in-process runtime starts no workers");
}

}  // namespace tandem
